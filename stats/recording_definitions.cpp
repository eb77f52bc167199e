// See recording_definitions.hpp. They have chunks of their own, which stay when others are thinned.
#include "stats/recording_definitions.hpp"

#include <algorithm>
#include <new>
#include <string_view>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/system_call.hpp"
#include "stats/counters.hpp"
#include "stats/python/places.hpp"
#include "stats/recording_chunks.hpp"
#include "stats/unwind/modules.hpp"

namespace cistern::recording {
namespace {

// Longer texts are cut: a definition has room in a chunk.
constexpr std::size_t kTextMax = 4096, kBytesMax = 3 * kTextMax;

struct Definitions : KnownNumbers {
  Lock lock;
  ChunkHead* chunk = nullptr;
  std::uint32_t modules = 0, lines = 0;
  Map<const void*, std::uint32_t> numbers;  // modules and lines, by their addresses
  std::atomic<SiteId> last_site{0};
};
// Null: no memory.
Definitions* definitions() {
  KnownNumbers* known = known_numbers.load(std::memory_order_acquire);
  if (known) return static_cast<Definitions*>(known);
  void* const room = internal_try_allocate(sizeof(Definitions));
  if (!room) return nullptr;
  auto* const fresh = new (room) Definitions;
  if (known_numbers.compare_exchange_strong(known, fresh)) return fresh;
  fresh->~Definitions();
  internal_deallocate(fresh, sizeof(Definitions));
  return static_cast<Definitions*>(known);
}

// One definition, where it is to stay. It counts when it is committed.
class Writer {
 public:
  Writer(Definitions& of, Definition tag) {
    if (!of.chunk || used(*of.chunk) + kBytesMax > kRoom) {
      of.chunk = take_chunk();
      if (of.chunk) begin_chunk(*of.chunk, ChunkKind::definitions, 0);
    }
    chunk_ = of.chunk;
    if (!chunk_) return;
    first_ = reinterpret_cast<std::uint8_t*>(chunk_ + 1) + used(*chunk_);
    *first_ = static_cast<std::uint8_t>(tag);
    at_ = first_ + kHeadBytes;
  }
  explicit operator bool() const { return chunk_; }
  void number(std::uint64_t value) { at_ = put_number(at_, value); }
  void text(std::string_view text) {
    text = text.substr(0, kTextMax - 16);
    number(text.size());
    at_ = std::copy(text.begin(), text.end(), at_);
  }
  void commit() {
    const auto bytes = static_cast<unsigned>(at_ - first_ - kHeadBytes);
    first_[1] = static_cast<std::uint8_t>(bytes | 128);
    first_[2] = static_cast<std::uint8_t>(bytes >> 7 | 128);
    first_[3] = static_cast<std::uint8_t>(bytes >> 14);
    chunk_->committed.store(static_cast<std::uint32_t>(at_ - reinterpret_cast<std::uint8_t*>(chunk_ + 1)),
                            std::memory_order_release);
  }

 private:
  static constexpr int kHeadBytes = 4;  // the tag, and the bytes that follow in three
  static std::size_t used(const ChunkHead& chunk) { return chunk.committed.load(std::memory_order_relaxed); }
  ChunkHead* chunk_;
  std::uint8_t *first_, *at_;
};

std::uint32_t number_of(Definitions& of, const void* defined) {
  const auto known = of.numbers.find(defined);
  return known == of.numbers.end() ? 0 : known->second;
}

// Modules and lines come before the sites that have them.
void define(Definitions& of, const Module* module) {
  if (!module || number_of(of, module)) return;
  Writer writer(of, Definition::module);
  if (!writer) return;
  const std::uint32_t number = of.numbers[module] = ++of.modules;
  writer.number(number);
  writer.text(module->path);
  writer.text(module->build_id);
  writer.commit();
}

void define(Definitions& of, const python::Line& line) {
  if (number_of(of, &line)) return;
  Writer writer(of, Definition::python_line);
  if (!writer) return;
  const std::uint32_t number = of.numbers[&line] = ++of.lines;
  writer.number(number);
  writer.text(line.function->text);
  writer.text(line.file->text);
  writer.number(line.number);
  writer.commit();
}

// The first visit of a site defines what its frames have, and the second one writes them.
struct Counted {
  Definitions& of;
  std::uint64_t frames = 0;
  const char* call = nullptr;  // null: there is no such site
};
struct Written {
  Definitions& of;
  Writer& writer;
};

// False: a thread forks.
bool count_frames(SiteId site, Counted& counted) {
  return visit_raw_frames(site, {&counted, [](void* to, const char* call) { static_cast<Counted*>(to)->call = call; },
                                 [](void* to, const Module* module, std::uintptr_t) {
                                   ++static_cast<Counted*>(to)->frames;
                                   define(static_cast<Counted*>(to)->of, module);
                                 },
                                 [](void* to, const python::Line& line) {
                                   ++static_cast<Counted*>(to)->frames;
                                   define(static_cast<Counted*>(to)->of, line);
                                 }});
}

bool write_frames(SiteId site, Written& written) {
  return visit_raw_frames(site, {&written, [](void*, const char*) {},
                                 [](void* to, const Module* module, std::uintptr_t address) {
                                   auto& [of, writer] = *static_cast<Written*>(to);
                                   const std::uint32_t number = module ? number_of(of, module) : 0;
                                   writer.number(number + 1);
                                   writer.number(number ? address - module->bias : address);
                                 },
                                 [](void* to, const python::Line& line) {
                                   auto& [of, writer] = *static_cast<Written*>(to);
                                   writer.number(0);
                                   writer.number(number_of(of, &line));
                                 }});
}
// Both under the lock.
void define_kind(Definitions& of, const Kind& kind) {
  Writer writer(of, Definition::kind);
  if (!writer) return;
  char name[64];
  std::size_t length = std::string_view(kind.name).copy(name, sizeof name - 8);
  if (kind.device >= 0) {
    name[length++] = ':';
    if (kind.device >= 10) name[length++] = static_cast<char>('0' + kind.device / 10 % 10);
    name[length++] = static_cast<char>('0' + kind.device % 10);
  }
  writer.number(kind.number);
  writer.text({name, length});
  writer.commit();
  of.kinds.add(kind.number);
}

void define_site(Definitions& of, SiteId site) {
  Counted counted{of};
  if (!count_frames(site, counted) || !counted.call) return;
  Writer writer(of, Definition::site);
  if (!writer) return;
  writer.number(site);
  writer.text(counted.call);
  writer.number(counted.frames);
  Written written{of, writer};
  if (!write_frames(site, written)) return;
  writer.commit();
  of.sites.add(site);
  of.last_site.store(std::max(of.last_site.load(), site));
}

}  // namespace

void define(const Kind& kind, SiteId site) {
  Definitions* const of = definitions();
  if (!of) return;
  const SignalsBlockedUnderLocks blocked;  // see take_chunk
  const Locked hold(of->lock);
  if (!of->kinds.has(kind.number)) define_kind(*of, kind);
  if (site && !of->sites.has(site)) define_site(*of, site);
}

void define_thread(std::uint32_t thread) {
  Definitions* const of = definitions();
  if (!of) return;
  const SignalsBlockedUnderLocks blocked;  // see take_chunk
  const Locked hold(of->lock);
  Writer writer(*of, Definition::thread);
  if (!writer) return;
  writer.number(thread);
  writer.number(static_cast<std::uint64_t>(system_call(SYS_gettid)));
  writer.commit();
}

bool is_defined(SiteId site) {
  const KnownNumbers* const known = known_numbers.load(std::memory_order_acquire);
  return known && known->sites.has(site);
}

SiteId last_defined() {
  const KnownNumbers* const known = known_numbers.load(std::memory_order_acquire);
  return known ? static_cast<const Definitions*>(known)->last_site.load() : 0;
}

// The parent's stay where they are, with all that they point to: it may have been in the middle of one.
void forget_definitions_in_child() {
  Definitions* const of_parent = static_cast<Definitions*>(known_numbers.exchange(nullptr));
  if (!of_parent) return;
  Lock& lock = of_parent->lock;
  new (&lock) Lock;
}

void leave_definitions_in_child() {
  auto* const of = static_cast<Definitions*>(known_numbers.load());
  if (!of) return;
  Lock& lock = of->lock;
  if (lock.held_elsewhere()) new (&lock) Lock;
}

}  // namespace cistern::recording
