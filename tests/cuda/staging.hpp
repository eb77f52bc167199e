// What the programs on copies through pinned chunks share: bytes that are different everywhere.
#pragma once
#include <algorithm>

#include "say.hpp"

inline uint64_t pattern_word(size_t number, unsigned round) {
  return (number + 1) * 0x9E3779B97F4A7C15u ^ (round + 1) * 0xD6E8FEB86659FD93u;
}

// Bytes that depend on their place and the round.
inline void write_pattern(void* to, size_t bytes, unsigned round) {
  auto* const at = static_cast<unsigned char*>(to);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = pattern_word(i / 8, round);
    memcpy(at + i, &word, std::min<size_t>(8, bytes - i));
  }
}

inline bool has_pattern(const void* from, size_t bytes, unsigned round) {
  const auto* const at = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = pattern_word(i / 8, round);
    if (memcmp(at + i, &word, std::min<size_t>(8, bytes - i)) != 0) return false;
  }
  return true;
}

inline std::vector<unsigned char> pattern(size_t bytes, unsigned round) {
  std::vector<unsigned char> made(bytes);
  write_pattern(made.data(), bytes, round);
  return made;
}
