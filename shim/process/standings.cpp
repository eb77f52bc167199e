// See standings.hpp. Set by the thread that ends the process, or under the lock of a report that is asked for.
#include "shim/process/standings.hpp"

#include <algorithm>

namespace cistern {
namespace {

constinit Judgement current{};

// What is found nowhere may be in a register, or in what could not be read.
Standing allow_for_unseen(Standing found) {
  if (!is_lost(found)) return found;
  if (current.unreadable_bytes) return Standing::unclassified;
  const bool is_nowhere = found != Standing::held_by_driver;
  return is_nowhere && current.unseen_threads ? Standing::possibly_lost : found;
}

}  // namespace

void JudgedMemory::sort() {
  std::sort(targets_.begin(), targets_.end(), [](const leaks::Target& a, const leaks::Target& b) {
    return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
  });
  std::sort(handed_out_.begin(), handed_out_.end());
}

void set_judgement(const Judgement& judgement) { current = judgement; }
const Judgement& judgement() { return current; }

Standing standing_of_target(std::uintptr_t first) {
  if (!current.is_known) return current.why_not ? Standing::unclassified : Standing::none;
  const auto at =
      std::lower_bound(current.targets.begin(), current.targets.end(), first,
                       [](const leaks::Target& one, std::uintptr_t address) { return one.first < address; });
  return at != current.targets.end() && at->first == first ? allow_for_unseen(at->standing) : Standing::unclassified;
}

Standing standing_of_host_block(const void* block) {
  if (!current.is_known) return current.why_not ? Standing::unclassified : Standing::none;
  host_pool::PictureBlock there;  // as its page was: one that holds other blocks by now has none of these
  if (!current.heap->find(reinterpret_cast<std::uintptr_t>(block), there)) return Standing::unclassified;
  const Standing found = leaks::standing_of(current.marks[there.number]);
  return found == Standing::none ? Standing::unclassified : allow_for_unseen(found);
}

}  // namespace cistern
