// See first_use.hpp.
#include "shim/opencl/first_use.hpp"

#include <algorithm>
#include <utility>

#include "shim/opencl/state.hpp"
#include "shim/process/process.hpp"

namespace cistern::opencl {
namespace {

// What else a command may take before the next call that is looked at: a kernel is compiled for its first one.
constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 20;

// What the program's objects and those that are kept have of the memory by now.
std::uint64_t taken_bytes(OpenclState& s) {
  const std::uint64_t all = read(s.counters.live_bytes) + s.pool.usage_bytes();
  return all - std::min(all, s.first_uses.bytes());
}

// Of what is kept, what has to go. The program takes memory otherwise too, and no call of its is heeded there: so never
// more is kept than is left beside it.
std::uint64_t missing_bytes(OpenclState& s, std::uint64_t now_ns) {
  const std::uint64_t first = s.first_uses.bytes(), kept = s.pool.usage_bytes(),
                      left = s.headroom.bytes({taken_bytes(s), now_ns, first != 0});
  const auto beyond = [&](std::uint64_t needed) { return needed > left ? needed - left : 0; };
  return std::max(beyond(first + kSpareBytes), (beyond(first + kept) + 1) / 2);
}

}  // namespace

template <class Ask>
void FirstUses::take_ended(Ask ask) {
  Vector<Begun> begun;
  {
    Locked hold(lock_);
    begun.swap(begun_);
  }
  const auto ended =
      std::partition(begun.begin(), begun.end(), [&](const Begun& one) { return ask(one) == Settled::no; });
  for (auto one = ended; one != begun.end(); ++one) expect_no_more(one->bytes);
  begun.erase(ended, begun.end());
  Locked hold(lock_);
  std::move(begun.begin(), begun.end(), std::back_inserter(begun_));
  begun_max_ = std::max<std::size_t>(64, 2 * begun_.size());
}

void FirstUses::begun(const std::shared_ptr<QueueClock>& clock, std::uint64_t number, std::uint64_t bytes) {
  if (!clock) return expect_no_more(bytes);
  bool many = false;
  {
    Locked hold(lock_);
    begun_.push_back({clock, number, bytes});
    many = begun_.size() > begun_max_;
  }
  if (many) take_ended([](const Begun& one) { return one.clock->known(one.number); });
}

void FirstUses::look_for_ends() {
  take_ended([](const Begun& one) { return one.clock->settled(one.number); });
}

void FirstUses::forget_in_child() {
  begun_.clear();
  bytes_ = 0;
}

// Host memory of the program's own is there already, and what is copied, or mapped for good, is taken at once.
FirstUse first_use_of(OpenclState& s, cl_context context, cl_bitfield flags, std::uint64_t bytes) {
  constexpr cl_bitfield kTakenAtOnce = kMemUseHostPtr | kMemAllocHostPtr | kMemCopyHostPtr;
  if (!bytes || (flags & kTakenAtOnce) || !traits_of(s, context).in_host_memory) return FirstUse::none;
  return FirstUse::open;
}

void keep_headroom(OpenclState& s, cl_context context) {
  if (!s.pool.usage_bytes() || phase() != Phase::running || !traits_of(s, context).in_host_memory) return;
  const std::uint64_t now_ns = coarse_now_ns();
  if (!missing_bytes(s, now_ns)) [[likely]]
    return;
  s.first_uses.look_for_ends();
  while (const std::uint64_t missing = missing_bytes(s, now_ns)) {
    const std::uint64_t kept = s.pool.usage_bytes();
    if (!s.pool.trim({.keep_bytes = kept - std::min(kept, missing), .unused_for_ns = 0}, now_ns)) return;
    s.headroom.forget();
  }
}

}  // namespace cistern::opencl
