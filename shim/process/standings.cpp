// See standings.hpp. Set by the thread that holds the judgement (judging/judging.hpp), which alone sees it.
#include "shim/process/standings.hpp"

#include <algorithm>
#include <atomic>

#include "stats/leak_class.hpp"

namespace cistern {
namespace {

constinit Judgement current{};
constinit std::atomic<const void*> judging_thread{nullptr};
constinit const Judgement kOfAnother = [] {
  Judgement none{};
  none.why_not = "another report was being written at that time";
  return none;
}();

const Judgement& judgement_of_thread() {
  const bool is_ours = judging_thread.load(std::memory_order_relaxed) == __builtin_thread_pointer();
  return is_ours ? current : kOfAnother;
}

// An address that is found nowhere in the program's memory may be in a register, or in memory that could not be read.
// `is_drivers`: memory that only a driver holds is the driver's own.
Standing allow_for_unseen(const Judgement& current, Standing found, bool is_drivers) {
  if (!is_lost(class_of(found))) return found;
  if (current.unreadable_bytes) return Standing::unclassified;
  const bool is_certain = is_drivers && found == Standing::held_by_driver;
  return current.unseen_threads && !is_certain ? Standing::possibly_lost : found;
}

}  // namespace

void JudgedMemory::sort() {
  std::sort(targets_.begin(), targets_.end(), [](const leaks::Target& a, const leaks::Target& b) {
    return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
  });
  std::sort(handed_out_.begin(), handed_out_.end());
}

void set_judgement(const Judgement& judgement) { current = judgement; }
const Judgement& judgement() { return judgement_of_thread(); }
void set_judging_thread(const void* thread) { judging_thread.store(thread, std::memory_order_relaxed); }

Standing standing_of_target(std::uintptr_t first, std::uint64_t born_ns) {
  const Judgement& current = judgement_of_thread();
  if (!current.is_known) return current.why_not ? Standing::unclassified : Standing::none;
  if (born_ns >= current.listed_ns) return Standing::unclassified;
  const auto at =
      std::lower_bound(current.targets.begin(), current.targets.end(), first,
                       [](const leaks::Target& one, std::uintptr_t address) { return one.first < address; });
  return at != current.targets.end() && at->first == first ? allow_for_unseen(current, at->standing, false)
                                                           : Standing::unclassified;
}

Standing standing_of_host_block(const void* block) {
  const Judgement& current = judgement_of_thread();
  if (!current.is_known) return current.why_not ? Standing::unclassified : Standing::none;
  host_pool::PictureBlock there;  // as its page was: one that holds other blocks by now has none of these
  if (!current.heap->find(reinterpret_cast<std::uintptr_t>(block), there)) return Standing::unclassified;
  const Standing found = leaks::standing_of(current.marks[there.number]);
  return found == Standing::none ? Standing::unclassified : allow_for_unseen(current, found, true);
}

}  // namespace cistern
