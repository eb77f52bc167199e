// Definitions: events name kinds, call sites and threads by number. Each is written down before the first
// event that has it.
#pragma once
#include <atomic>
#include <cstddef>

#include "stats/recording.hpp"

namespace cistern::recording {

// Numbers that the file knows. Read without a lock.
template <std::size_t most>
class Known {
 public:
  bool has(std::size_t number) const {
    return number >= most || words_[number / 64].load(std::memory_order_relaxed) >> number % 64 & 1;
  }
  void add(std::size_t number) { words_[number / 64].fetch_or(std::uint64_t{1} << number % 64); }

 private:
  std::atomic<std::uint64_t> words_[(most + 63) / 64] = {};
};
// Larger numbers are never defined.
struct KnownNumbers {
  Known<std::size_t{1} << 14> kinds;
  Known<std::size_t{1} << 20> sites;
};
inline constinit std::atomic<KnownNumbers*> known_numbers{nullptr};

inline bool are_defined(const Kind& kind, SiteId site) {
  const KnownNumbers* const known = known_numbers.load(std::memory_order_acquire);
  return known && known->kinds.has(kind.number) && (!site || known->sites.has(site));
}
// Where there is no room, or a thread forks, the file does not come to know it, or with a later event. Not under the
// lock of a slot.
void define(const Kind& kind, SiteId site);
void define_thread(std::uint32_t thread);

void forget_definitions_in_child();
void leave_definitions_in_child();

}  // namespace cistern::recording
