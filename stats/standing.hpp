// The class of a live block: whether pointers from the program's memory lead to it, and which.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern {

enum class Standing : std::uint8_t {
  none,             // there was no judgement, or it was made later
  reachable,        // a chain of pointers to blocks' begins leads to it (device memory: to anywhere inside)
  possibly_lost,    // a chain with an interior pointer leads to it
  held_by_driver,   // only memory of a driver leads to it: the program cannot give it back
  indirectly_lost,  // only lost blocks lead to it
  lost,             // nothing leads to it
  unclassified,     // memory that could not be read may lead to it
  count
};

constexpr std::size_t kStandings = static_cast<std::size_t>(Standing::count);

}  // namespace cistern
