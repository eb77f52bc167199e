// How many bits of a word are set. Those of the standard library call a function of libgcc where the processor may not
// have an instruction for it, and that reads a table: far from all else, they make a small process larger by 128 KiB.
#pragma once
#include <cstdint>

namespace cistern {

constexpr unsigned count_bits(std::uint64_t word) {
  word -= word >> 1 & 0x5555'5555'5555'5555;
  word = (word & 0x3333'3333'3333'3333) + (word >> 2 & 0x3333'3333'3333'3333);
  word = (word + (word >> 4)) & 0x0f0f'0f0f'0f0f'0f0f;
  return static_cast<unsigned>(word * 0x0101'0101'0101'0101 >> 56);
}
constexpr bool is_power_of_two(std::uint64_t word) { return word && !(word & (word - 1)); }

static_assert(count_bits(0) == 0 && count_bits(~std::uint64_t{0}) == 64 && count_bits(0x8000'0000'0001'0010) == 3);
static_assert(!is_power_of_two(0) && is_power_of_two(1) && is_power_of_two(1ull << 63) && !is_power_of_two(6));

}  // namespace cistern
