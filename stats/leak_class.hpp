// The class of live memory in a report: what it is to the program, or why that is not known. Code asks the enumerator;
// its name is for those who read a report in JSON, its text for those who read one in words.
#pragma once
#include <cstdint>
#include <string_view>

#include "stats/standing.hpp"

namespace cistern {

// The first are those of Standing, in its order.
enum class LeakClass : std::uint8_t {
  never_freed,
  reachable,
  possibly_lost,
  held_by_driver,
  indirectly_lost,
  lost,
  unclassified,
  live,              // the program runs, or a signal ended it: what it would still have freed is not known
  went_with_context  // the context was reset or destroyed while the program still held the memory
};

constexpr std::size_t kLeakClasses = static_cast<std::size_t>(LeakClass::went_with_context) + 1;

constexpr LeakClass class_of(Standing standing) { return static_cast<LeakClass>(standing); }
static_assert(class_of(Standing::none) == LeakClass::never_freed && class_of(Standing::lost) == LeakClass::lost &&
              class_of(Standing::unclassified) == LeakClass::unclassified);

constexpr std::string_view name_of(LeakClass leak_class) {
  constexpr std::string_view kNames[kLeakClasses] = {
      "never freed", "reachable",    "possibly lost", "held only by the driver",           "indirectly lost",
      "lost",        "unclassified", "live",          "never freed, went with its context"};
  return kNames[static_cast<std::size_t>(leak_class)];
}

// In words, by the glossary. The names cannot follow it: they are a contract.
constexpr std::string_view text_of(LeakClass leak_class) {
  return leak_class == LeakClass::held_by_driver      ? "driver-held"
         : leak_class == LeakClass::went_with_context ? "never freed, context destroyed"
                                                      : name_of(leak_class);
}

// The program has no way left to give it back.
constexpr bool is_lost(LeakClass leak_class) {
  return leak_class == LeakClass::lost || leak_class == LeakClass::indirectly_lost ||
         leak_class == LeakClass::held_by_driver;
}

}  // namespace cistern
