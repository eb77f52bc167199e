// The toy driver's memory in segments, which the library's pools cut into blocks. All work of a context runs in order,
// and is done when its call returns: nothing waits.
#include "pool/base/address_table.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "tests/toy/kind/state.hpp"

namespace cistern::toy {
namespace {

using library::BlockRequest;
using library::CutBlock;
using library::CutEnd;
using library::Place;

// A record of a context. It stays: another context may have its address later.
struct KnownContext {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<std::uint64_t> life{1};
};
constinit AddressTable<KnownContext> contexts;
constinit Lock lock;  // for a new context, and for:
struct Allocation {
  void* memory;
  std::size_t bytes;
};
using Allocations = Map<std::uintptr_t, Allocation>;
constinit Allocations* allocations = nullptr;  // segments by the address where each begins

KnownContext& known(toy_context* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(context);
  if (KnownContext* const found = contexts.find(address)) return *found;
  const Locked hold(lock);
  if (KnownContext* const found = contexts.find(address)) return *found;
  auto* const made = new (internal_allocate(sizeof(KnownContext))) KnownContext;
  made->address = address;
  contexts.insert(address, made);
  return *made;
}

const KnownContext& of(const Place& place) { return *reinterpret_cast<const KnownContext*>(place.context); }
toy_context* handle_of(const Place& place) { return reinterpret_cast<toy_context*>(of(place).address.load()); }
bool is_there(const Place& place) { return of(place).life.load() == place.life; }

cistern_status find(const BlockRequest& request, Place* place) {
  KnownContext& context = known(static_cast<toy_context*>(request.context));
  *place = {reinterpret_cast<std::uintptr_t>(&context), context.life.load(), 0};
  return CISTERN_OK;
}

// The driver aligns to 16 bytes.
cistern_status acquire(const Place& place, std::size_t bytes, Shortage shortage, std::uintptr_t* first) {
  void* memory = nullptr;
  int error = next().toy_allocate(handle_of(place), bytes + ranges::kGranule, &memory);
  if (error == TOY_NO_MEMORY && shortage == Shortage::makes_room) {
    state().pool.drain(reinterpret_cast<std::uintptr_t>(handle_of(place)));
    error = next().toy_allocate(handle_of(place), bytes + ranges::kGranule, &memory);
  }
  if (error) return status_of(error);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  *first = (address + ranges::kGranule - 1) / ranges::kGranule * ranges::kGranule;
  state().in_segments.all += bytes;
  const Locked hold(lock);
  if (!allocations) allocations = new (internal_allocate(sizeof(Allocations))) Allocations;
  allocations->insert_or_assign(*first, Allocation{memory, bytes});
  return CISTERN_OK;
}

void release(const Place& place, std::uintptr_t first) {
  Allocation gone{};
  {
    const Locked hold(lock);
    const auto found = allocations->find(first);
    if (!is_there(place) || found == allocations->end()) return;
    gone = found->second;
    allocations->erase(found);
  }
  state().in_segments.all -= gone.bytes;
  next().toy_free(handle_of(place), gone.memory);
}

cistern_status begin(const Place& place, const CutBlock& block) {
  State& s = state();
  s.in_segments.live += block.wanted_bytes;
  s.counters.block_born({block.wanted_bytes}, block.was_there);
  s.blocks.put(reinterpret_cast<void*>(block.address), {.context = handle_of(place),
                                                        .bytes = block.wanted_bytes,
                                                        .site = s.sites_on ? capture_site("toy_allocate") : 0,
                                                        .born_ns = coarse_nanoseconds_since_start(),
                                                        .is_cut = true});
  return CISTERN_OK;
}

cistern_status end(const Place& place, std::uintptr_t address, void*, library::InOrder, CutEnd*) {
  State& s = state();
  Block gone{};
  const auto is_it = [&](const Block& block) { return block.is_cut && block.context == handle_of(place); };
  if (!s.blocks.take_if(reinterpret_cast<void*>(address), gone, is_it)) return library::refused(TOY_INVALID);
  s.in_segments.live -= gone.bytes;
  if (!gone.inherited) s.counters.block_died({gone.bytes});
  return CISTERN_OK;
}

}  // namespace

void context_ended(toy_context* context) { known(context).life.fetch_add(1); }

void segments_before_fork() {
  lock.lock_for_fork();
  contexts.before_fork();
}
void segments_after_fork() {
  contexts.after_fork();
  lock.unlock_after_fork();
}

extern constexpr library::KindSegments segments = {
    .find = find,
    .is_there = is_there,
    .acquire = acquire,
    .release = release,
    .begin = begin,
    .end = end,
    .now = [](const Place&) { return std::uint64_t{0}; },
    .settled = [](const Place&, library::WorkFence&) { return Settled::yes; },
};
static_assert(is_whole(segments));

}  // namespace cistern::toy
