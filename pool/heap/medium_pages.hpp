// Pages of medium blocks: numbers and bits of their blocks. medium.hpp has what a thread does with them.
#pragma once
#include <algorithm>

#include "pool/heap/pages.hpp"

namespace cistern::host_pool {

// The array of a class keeps at most kWaitingBytes, and gets about kStepBytes in one step: from a page, or as room for
// freed blocks.
constexpr std::size_t kWaitingBytes = std::size_t{256} * 1024, kStepBytes = std::size_t{64} * 1024;

inline constexpr struct MediumClasses {
  struct One {
    std::uint32_t bytes, inverse;  // see start_bound
    std::uint64_t all;             // a bit for each block of a page
    std::uint32_t waiting_max, step, awake;
  } of[kMediumClasses];
  One none = {};  // its pages have no blocks
  constexpr MediumClasses() : of{} {
    for (unsigned i = 0; i < kMediumClasses; ++i) {
      const unsigned id = kFirstMedium + i;
      const std::size_t bytes = class_bytes(id);
      of[i] = {.bytes = static_cast<std::uint32_t>(bytes),
               .inverse = inverse_of(bytes),
               .all = (std::uint64_t{1} << page_capacity(id)) - 1,
               .waiting_max = static_cast<std::uint32_t>(std::min<std::size_t>(kWaitingBytes / bytes, kWaitingMax)),
               .step = static_cast<std::uint32_t>(std::clamp<std::size_t>(kStepBytes / bytes, 4, kWaitingMax / 2)),
               .awake = std::max(page_capacity(id) / 8, 2u)};
    }
  }
} kMedium;
// The page may become one of small blocks meanwhile, with another class: so the class is read only one time.
inline const MediumClasses::One& medium_class(const Page& page) {
  const unsigned medium = __atomic_load_n(&page.size_class, __ATOMIC_RELAXED) - kFirstMedium;
  return medium < kMediumClasses ? kMedium.of[medium] : kMedium.none;
}

// The medium class of a size: classes differ by 128 bytes at least.
inline constexpr struct MediumOfBytes {
  std::uint8_t of[kSmallMax / 128];
  constexpr MediumOfBytes() : of{} {
    for (std::size_t i = kDirectMax / 128; i < kSmallMax / 128; ++i)
      of[i] = static_cast<std::uint8_t>(class_of((i + 1) * 128) - kFirstMedium);
  }
} kMediumOfBytes;

constexpr std::uint64_t bit_of(std::uintptr_t number) { return std::uint64_t{1} << number % 64; }

// The number of the block that starts `offset` bytes into the page; kNoBlock: none can.
inline unsigned medium_number(const Page& page, std::size_t offset) {
  const MediumClasses::One& own = medium_class(page);
  const auto number = static_cast<unsigned>(std::uint64_t{offset} * own.inverse >> 32);
  return std::uint64_t{number} * own.bytes == offset && own.all >> number & 1 ? number : kNoBlock;
}
inline void* medium_block(const Page& page, unsigned number) {
  return page_memory(&page) + std::size_t{number} * medium_class(page).bytes;
}

// The program's, as far as their threads have said by now.
inline std::uint64_t live_bits(const Page& page) {
  return page.live & medium_class(page).all & ~page.remote.load(std::memory_order_acquire);
}
// Above the bits of `live`: how many were ever fetched from the page, the lowest ones; the others never were blocks.
constexpr unsigned kFetchedShift = 58;
static_assert(page_capacity(kFirstMedium) < kFetchedShift);
inline unsigned fetched_ever(const Page& page) { return static_cast<unsigned>(page.live >> kFetchedShift); }

}  // namespace cistern::host_pool
