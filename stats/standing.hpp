// What a live block is to the program: found by following pointers from its memory, or not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cistern {

enum class Standing : std::uint8_t {
  none,             // nobody looked, or it was made later
  reachable,        // a chain of pointers to blocks' begins leads to it (device memory: to anywhere inside)
  possibly_lost,    // a chain that somewhere has but a pointer into the midst of a block
  held_by_driver,   // only memory of a driver leads to it: the program cannot give it back
  indirectly_lost,  // only lost blocks lead to it
  lost,             // nothing leads to it
  unclassified,     // what could not be read may lead to it
  count
};

constexpr std::size_t kStandings = static_cast<std::size_t>(Standing::count);

constexpr std::string_view name_of(Standing standing) {
  constexpr std::string_view kNames[] = {"never freed",     "reachable", "possibly lost", "held only by the driver",
                                         "indirectly lost", "lost",      "unclassified"};
  return kNames[static_cast<int>(standing)];
}

// The program has no way left to give it back.
constexpr bool is_lost(Standing standing) {
  return standing == Standing::lost || standing == Standing::indirectly_lost || standing == Standing::held_by_driver;
}

}  // namespace cistern
