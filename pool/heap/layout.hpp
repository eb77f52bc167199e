// Layout of the host pool: size classes, slices, and the page descriptors that serve as page map.
//
// The pool's memory lies in one window of addresses, cut into slices of 64 KiB. Descriptor i describes slice i of that
// window, so a pointer's page is found without a search. A pointer that is not ours lies outside of the slices that
// have descriptors, or finds a descriptor without an owner. Descriptors are made as the window is used. Nothing of this
// is in the program's memory: a free block holds only the link to the next one and a mark, both worthless once it is
// handed out.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cistern::host_pool {

// --- Size classes: multiples of 16 up to 128 bytes, then eight per doubling up to 32 KiB
constexpr std::size_t kGranule = 16;
constexpr std::size_t kDirectMax = 1024;  // up to here a table gives the class
constexpr std::size_t kSmallMax = std::size_t{32} * 1024;
constexpr unsigned kClasses = 8 + 8 * 8;

constexpr unsigned class_of(std::size_t bytes) {  // bytes <= kSmallMax
  if (bytes <= 128) return bytes ? static_cast<unsigned>((bytes - 1) / kGranule) : 0;
  const std::size_t last = bytes - 1;
  const auto doubling = static_cast<unsigned>(std::bit_width(last)) - 1;
  return 8 + (doubling - 7) * 8 + ((last >> (doubling - 3)) & 7);
}

constexpr std::size_t class_bytes(unsigned id) {
  if (id < 8) return (id + 1) * kGranule;
  return std::size_t{8 + (id - 8) % 8 + 1} << ((id - 8) / 8 + 4);
}
static_assert(class_of(kSmallMax) == kClasses - 1 && class_bytes(kClasses - 1) == kSmallMax);

inline std::uintptr_t address_of(const void* block) { return reinterpret_cast<std::uintptr_t>(block); }

// --- Slices and pages
constexpr unsigned kSliceShift = 16;
constexpr std::size_t kSliceBytes = std::size_t{1} << kSliceShift;
constexpr std::size_t kSlicesMax = std::size_t{1} << 29;  // 32 TiB, the longest window
constexpr std::size_t kFewBlocksAbove = 4096;

// A page holds blocks of one class. Medium blocks are larger than the table of classes reaches. Their pages have up to
// 63 of them, so a word of bits has the state of each (medium.hpp). A page has at most 32 blocks that are larger than
// 4 KiB, each of which may have a call site (samples_in_place.hpp).
constexpr bool is_medium(unsigned id) { return class_bytes(id) > kDirectMax; }
constexpr bool has_few_blocks(unsigned id) { return class_bytes(id) > kFewBlocksAbove; }
constexpr unsigned page_slices(unsigned id) { return class_bytes(id) <= 2048 ? 1 : class_bytes(id) <= 8192 ? 2 : 4; }
constexpr unsigned page_capacity(unsigned id) {
  return static_cast<unsigned>(page_slices(id) * kSliceBytes / class_bytes(id));
}

inline constexpr struct BytesOfClass {
  std::uint64_t of[kClasses];
  constexpr BytesOfClass() : of{} {
    for (unsigned id = 0; id < kClasses; ++id) of[id] = class_bytes(id);
  }
} kBytesOfClass;
inline constexpr struct CapacityOfClass {
  std::uint16_t of[kClasses];
  constexpr CapacityOfClass() : of{} {
    for (unsigned id = 0; id < kClasses; ++id) of[id] = static_cast<std::uint16_t>(page_capacity(id));
  }
} kCapacityOfClass;

constexpr unsigned kFirstMedium = class_of(kDirectMax + 1), kMediumClasses = kClasses - kFirstMedium;
static_assert([] {
  for (unsigned id = 0; id < kClasses; ++id) {
    if (!is_medium(id) && page_slices(id) != 1) return false;
    if (is_medium(id) && page_capacity(id) > (has_few_blocks(id) ? 32 : 63)) return false;
  }
  return true;
}());

// A member that another thread may look at while its owner changes it: plain loads and stores, never torn.
template <class T>
class Relaxed {
 public:
  operator T() const {
    T value;
    __atomic_load(&value_, &value, __ATOMIC_RELAXED);
    return value;
  }
  void operator=(T value) { __atomic_store(&value_, &value, __ATOMIC_RELAXED); }
  // A thread that sees the value sees the writes before it too.
  void publish(T value) { __atomic_store(&value_, &value, __ATOMIC_RELEASE); }

 private:
  T value_;  // no std::atomic, which has a constructor: those of Page share places
};

struct Block {
  Block* next;
  std::uintptr_t mark;  // free_mark while the block is free
};

enum class PageState : std::uint8_t {
  none,      // not the first slice of anything: beyond the top, inside a large block
  absent,    // first slice of what is not to be had: foreign, unmapped, or on its way (region.cpp)
  free,      // first slice of free memory
  free_end,  // last slice of it, if it is another
  small,     // first slice of a page of small blocks
  medium,    // of medium blocks
  interior,  // a later slice of such a page, or of one with call sites
  large,     // first slice of a large block
  sampled,   // first slice of a page whose blocks have call sites (samples.hpp)
};

using Slice = std::uint32_t;  // 0: none

struct SampleRecord;  // samples.hpp

// Describes a slice: `state` says as what, and which of the members that share a place are meant. They are unions and
// not a struct for each state, because half of the members belong to several states. Also, a page may change its state
// while another thread reads it, which must not believe what it reads. A thread that neither owns the page nor holds
// the lock that guards it writes only `remote`, `owner`, `heap`, `sited` and `inbox_next`.
struct alignas(64) Page {
  union {
    Block* free_blocks;       // small, sampled: freed by the owner, and by others as far as collected
    std::uint64_t free_bits;  // medium: the same, by number
    std::uint64_t bytes;      // large: usable; absent: see region.cpp
  };
  union {
    struct {                          // small, sampled
      std::uint16_t until;            // frees by the owner until page_ripe has something to do
      std::uint16_t beyond;           // blocks handed out = until + beyond (modulo 2^16)
      Relaxed<std::uint16_t> carved;  // blocks that exist; the memory behind was not touched since the page was made
    };
    Relaxed<std::uint64_t> live;  // medium: the program's, and those in `remote`
  };
  std::atomic<std::uintptr_t> owner;  // thread pointer of the owner; 0: no thread may use the fast path
  union {
    std::uint32_t inverse;             // small, sampled: see start_bound
    std::atomic<std::uint32_t> sited;  // medium: a bit for each block sampled in place (samples.hpp)
    std::uint32_t site;                // large; 0: none
  };
  union {
    std::uint32_t start_bound;  // small: see start_bound; medium: 0
    struct {                    // large
      std::uint16_t slack;      // usable bytes less those asked for
      std::uint8_t doublings;   // the interval that it was drawn at, if it has a site
      bool is_short;            // the memory behind the usable bytes is unmapped
    };
  };
  union {
    Slice next;             // in a queue of pages, a bin of free spans, a list of what waits for the region
    std::uint32_t born_ms;  // large
  };
  Slice previous;
  union {
    Slice heap_next;            // small, medium: in the list of all pages of the heap, with heap_previous
    std::uint32_t dirty_since;  // free, dirty: see region.cpp
    std::uint8_t forks;         // large, if it has a site: see SampleRecord
  };
  Slice heap_previous;
  union {
    std::uint32_t slices;       // large, free, absent: length
    Relaxed<Slice> to_first;    // interior, last of free: so many slices back
    Relaxed<Slice> inbox_next;  // small, medium
  };
  union {
    std::uint8_t size_class;  // small, medium; sampled: of its cells
    std::uint8_t sort;        // free: clean or dirty, absent: what is done; see region.cpp
  };
  Relaxed<PageState> state;
  union {
    std::atomic<std::uint16_t> heap;   // small, medium: remote frees go to this heap's inbox; 0: the orphanage
    std::atomic<std::uint16_t> shard;  // sampled: whose lock guards it
  };
  union {
    // Freed by others. Small: count << 48 | first block; medium: by number; else 0.
    std::atomic<std::uint64_t> remote;
    SampleRecord* records;  // sampled: its side table
  };

  unsigned handed_out() const { return static_cast<std::uint16_t>(until + beyond); }
};
static_assert(sizeof(Page) == 64);

// Whether a block that exists starts `offset` bytes into a page of small blocks. Let m = inverse_of(size), which is
// floor(2^32 / size) + 1, and e = m * size - 2^32, which is at most size. Then the product offset * m modulo 2^32 is
//   q * e             for offset = q * size,
//   q * e + r * m     for offset = q * size + r, 0 < r < size: at least m,
// and m is above the page's q * e for sizes up to 4 KiB. So `offset * m < carved * e` asks for both in one
// comparison. (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019.)
constexpr std::uint32_t inverse_of(std::size_t size) {
  return static_cast<std::uint32_t>((std::uint64_t{1} << 32) / size) + 1;
}
constexpr std::uint32_t start_bound(std::size_t size, unsigned carved) {
  return carved * static_cast<std::uint32_t>(inverse_of(size) * std::uint64_t{size} - (std::uint64_t{1} << 32));
}

}  // namespace cistern::host_pool
