// The region: spans against a model of what is out, one span made of neighbours, promises of zero memory kept, and
// every system call failing.
#include "pool/heap/region.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "pool/base/page_size.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

using test::in_child;
using test::region_fault;

// --- System calls that fail when told to
int map_calls, failing_maps, map_error, failing_describe, give_back_calls;
std::uint64_t bytes_given_back;
System real_system;

void intercept_system() {
  real_system = region_system;
  map_calls = failing_maps = failing_describe = give_back_calls = 0;
  region_system.map = [](void* at, std::size_t bytes) {
    ++map_calls;
    if (failing_maps-- > 0) {
      errno = map_error;
      return false;
    }
    return real_system.map(at, bytes);
  };
  region_system.describe = [](void* at, std::size_t bytes) {
    return failing_describe-- <= 0 && real_system.describe(at, bytes);
  };
  region_system.give_back = [](void* at, std::size_t bytes) {
    ++give_back_calls;
    bytes_given_back += bytes;
    real_system.give_back(at, bytes);
  };
}

// Dirty memory that is given back may make a larger span.
std::uint32_t more_than_is_free() {
  trim_region(0);
  return static_cast<std::uint32_t>(region_figures().largest_free_bytes / kSliceBytes) + 1;
}

// The calls, and what they chose to give back.
Span acquire_now(std::uint32_t slices, std::uint32_t alignment_slices = 1, Prefer prefer = Prefer::dirty,
                 std::uint32_t replaced = 0) {
  const Span span = acquire_span(slices, alignment_slices, prefer, replaced);
  do_chosen_work();
  return span;
}
void release_now(Slice first, std::uint32_t slices) {
  release_span(first, slices);
  do_chosen_work();
}

bool is_aligned(Slice first, std::uint32_t slices) {
  return address_of(slice_memory(first)) % (slices * std::uintptr_t{kSliceBytes}) == 0;
}

// A byte of each page of the system; of long spans, of some.
std::size_t step_of(std::uint32_t slices) { return slices <= 256 ? page_bytes() : kSliceBytes * 4; }
void touch(Slice first, std::uint32_t slices, char with) {
  for (std::size_t at = 0; at < slices * kSliceBytes; at += step_of(slices)) slice_memory(first)[at] = with;
}
bool is_untouched(Slice first, std::uint32_t slices) {
  for (std::size_t at = 0; at < slices * kSliceBytes; at += step_of(slices))
    if (slice_memory(first)[at]) return false;
  return true;
}

TEST(HostRegionTest, WithoutAWindowThereIsNoMemoryAndNoCrash) {
  EXPECT_TRUE(test::pool_start.refused_region);
  EXPECT_TRUE(test::pool_start.refused_small);
  EXPECT_TRUE(test::pool_start.refused_large);
  EXPECT_TRUE(test::pool_start.foreign_before);
  EXPECT_TRUE(start_region());  // idempotent
}

void run_against_a_model() {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::map<Slice, std::uint32_t> held;
  std::uint64_t held_slices = 0;
  const std::uint64_t in_use_before = region_figures().in_use_bytes;
  const auto overlaps = [&](Slice first, std::uint32_t slices) {
    const auto behind = held.lower_bound(first + slices);
    return behind != held.begin() && std::prev(behind)->first + std::prev(behind)->second > first;
  };
  const auto take = [&](Slice first, std::uint32_t slices) {
    ASSERT_FALSE(overlaps(first, slices));
    ASSERT_TRUE(first >= region_begin() && first + slices <= region_end());
    touch(first, slices, static_cast<char>(first | 1));
    held_slices += slices;
  };
  const auto reads_as_zero = [&](Slice first, std::uint32_t slices) {
    return random() % 8 ? is_untouched(first, slices) : test::is_zero(slice_memory(first), slices * kSliceBytes);
  };
  const auto drop = [&](Slice first, std::uint32_t slices) {
    release_now(first, slices);
    held_slices -= slices;
  };
  for (int step = 0; step < 4000; ++step) {
    const unsigned what = random() % 100;
    auto chosen = held.empty() ? held.end() : held.lower_bound(held.begin()->first + random() % 4096);
    if (chosen == held.end() && !held.empty()) chosen = std::prev(chosen);
    if (chosen == held.end() || what < (held.size() < 60 ? 55u : 40u)) {
      const std::uint32_t slices = 1 + random() % (random() % 10 ? 8 : 200);
      const std::uint32_t alignment = random() % 4 ? 1 : 1u << random() % 8;
      const Span span = acquire_now(slices, alignment);
      ASSERT_TRUE(span.first);
      ASSERT_TRUE(is_aligned(span.first, alignment));
      const Slice dirty_end = span.dirty_slices ? span.dirty_first + span.dirty_slices : span.first;
      if (span.dirty_slices) {
        ASSERT_TRUE(span.dirty_first >= span.first && dirty_end <= span.first + slices);
        ASSERT_TRUE(reads_as_zero(span.first, span.dirty_first - span.first));
      }
      ASSERT_TRUE(reads_as_zero(dirty_end, span.first + slices - dirty_end));
      ASSERT_NO_FATAL_FAILURE(take(span.first, slices));
      held[span.first] = slices;
    } else if (what < 80) {
      const auto [first, slices] = *chosen;
      for (std::size_t at = 0; at < slices * kSliceBytes; at += page_bytes()) ASSERT_NE(slice_memory(first)[at], 0);
      drop(first, slices);
      held.erase(chosen);
    } else if (what < 90) {
      auto& [first, slices] = *chosen;
      const std::uint32_t more = 1 + random() % 16;
      if (extend_span(first + slices, more)) {
        ASSERT_NO_FATAL_FAILURE(take(first + slices, more));
        slices += more;
      }
    } else if (what < 98) {
      auto& [first, slices] = *chosen;
      if (slices > 1) {
        const std::uint32_t kept = 1 + random() % (slices - 1);
        drop(first + kept, slices - kept);
        slices = kept;
      }
    } else {
      trim_region((random() % 8) << 20);
    }
    ASSERT_EQ(region_figures().in_use_bytes - in_use_before, held_slices * kSliceBytes);
    if (step % 16 == 0) {
      ASSERT_EQ(region_fault(), "");
    }
  }
  for (const auto& [first, slices] : held) release_now(first, slices);
  EXPECT_EQ(region_figures().in_use_bytes, in_use_before);
  EXPECT_EQ(region_fault(), "");
}

TEST(HostRegionTest, SpansAgainstAModel) { run_against_a_model(); }

// --- Where addresses are scarce
int unmap_calls, failing_unmaps;

void make_addresses_scarce() {
  unmap_calls = failing_unmaps = 0;
  region_system.unmap = [](void* at, std::size_t bytes) {
    ++unmap_calls;
    return failing_unmaps-- <= 0 && munmap(at, bytes) == 0;
  };
  region_system.limit_bytes = [] { return std::uint64_t{1} << 40; };
  limits_changed();
}

TEST(HostRegionTest, SpansAgainstAModelWhereAddressesAreScarce) {
  in_child([] {
    make_addresses_scarce();
    const std::uint32_t slices = more_than_is_free() + 1000;  // at the top, however much other tests left in use
    release_now(acquire_now(slices).first, slices);
    EXPECT_GT(unmap_calls, 0);
    run_against_a_model();
  });
}

TEST(HostRegionTest, WhereAddressesAreScarceWhatIsFreeIsUnmapped) {
  in_child([] {
    make_addresses_scarce();
    const RegionFigures before = region_figures();
    struct Held {
      Slice first;
      std::uint32_t slices;
    };
    std::vector<Held> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back({0, more_than_is_free() + 1000});
      all.back().first = acquire_now(all.back().slices).first;
      ASSERT_TRUE(all.back().first);
      touch(all.back().first, all.back().slices, 1);
    }
    const std::uint64_t mapped = region_figures().mapped_bytes;
    const int calls = unmap_calls;
    failing_unmaps = 1 << 20;
    release_now(all.back().first, all.back().slices);
    failing_unmaps = 0;
    EXPECT_GT(unmap_calls, calls);
    EXPECT_EQ(region_figures().mapped_bytes, mapped);
    EXPECT_EQ(region_fault(), "");
    all.pop_back();
    for (const Held& held : all) release_now(held.first, held.slices);
    EXPECT_EQ(region_figures().in_use_bytes, before.in_use_bytes);
    EXPECT_LE(region_figures().mapped_bytes, before.mapped_bytes + (4 << 20) + before.in_use_bytes / 4);
    EXPECT_EQ(region_fault(), "");
    std::uint32_t unmapped = 0;
    for (const Held& held : all)
      for (Slice at = held.first; at < held.first + held.slices; ++at) {
        unsigned char resident;
        unmapped += mincore(slice_memory(at), page_bytes(), &resident) != 0;
      }
    EXPECT_GT(unmapped, 1000u);
    // And it is to be had again.
    const std::uint32_t slices = more_than_is_free();
    const Span again = acquire_now(slices);
    ASSERT_TRUE(again.first);
    EXPECT_TRUE(!again.dirty_slices && is_untouched(again.first, slices));
    touch(again.first, slices, 1);
    release_now(again.first, slices);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, PiecesThatComeBackAreOneSpanAgain) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr std::uint32_t kSlices = 600;
  const Span span = acquire_now(kSlices);
  ASSERT_TRUE(span.first);
  std::vector<std::uint32_t> pieces;
  for (std::uint32_t i = 0; i < kSlices; i += 3) pieces.push_back(i);
  std::shuffle(pieces.begin(), pieces.end(), std::mt19937(seed));
  for (const std::uint32_t piece : pieces) {
    release_now(span.first + piece, 3);
    ASSERT_EQ(region_fault(), "");
  }
  trim_region(0);
  EXPECT_GE(region_figures().largest_free_bytes, kSlices * kSliceBytes);
  for (std::uint32_t i = 1; i + 1 < kSlices; ++i) ASSERT_EQ(page_at(span.first + i)->state, PageState::none);
}

TEST(HostRegionTest, AlignedSpansLeaveTheRestUsable) {
  in_child([] {
    const std::uint64_t in_use = region_figures().in_use_bytes;
    for (std::uint32_t alignment = 1; alignment <= 16384; alignment *= 4)
      for (const std::uint32_t slices : {1u, 3u, 40u}) {
        const Span span = acquire_now(slices, alignment);
        ASSERT_TRUE(span.first) << alignment;
        EXPECT_TRUE(is_aligned(span.first, alignment));
        EXPECT_EQ(region_figures().in_use_bytes - in_use, slices * kSliceBytes);
        EXPECT_EQ(region_fault(), "");
        release_now(span.first, slices);
      }
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, ASpanIsExtendedOnlyIntoFreeMemory) {
  const Span span = acquire_now(40);
  ASSERT_TRUE(span.first);
  release_now(span.first + 10, 30);
  ASSERT_TRUE(extend_span(span.first + 10, 4));
  const RegionFigures before = region_figures();
  EXPECT_FALSE(extend_span(span.first + 14, more_than_is_free()));
  EXPECT_FALSE(extend_span(span.first + 13, 1));  // in use
  EXPECT_FALSE(extend_span(region_end(), 1));
  EXPECT_EQ(region_figures().in_use_bytes, before.in_use_bytes);
  release_now(span.first, 14);
  EXPECT_EQ(region_fault(), "");
}

TEST(HostRegionTest, WhatIsGivenBackReadsAsZero) {
  in_child([] {
    trim_region(0);
    const Span span = acquire_now(64);
    ASSERT_TRUE(span.first && !span.dirty_slices);
    touch(span.first, 64, 1);
    release_now(span.first, 64);
    const RegionFigures dirty = region_figures();
    EXPECT_EQ(dirty.dirty_bytes, 64 * kSliceBytes);
    const Span again = acquire_now(64);
    EXPECT_EQ(again.first, span.first);  // resident memory is used first
    EXPECT_EQ(again.dirty_slices, 64u);
    release_now(again.first, 64);
    intercept_system();
    EXPECT_EQ(trim_region(16 * kSliceBytes), 48 * kSliceBytes);
    EXPECT_EQ(region_figures().dirty_bytes, 16 * kSliceBytes);
    EXPECT_EQ(region_fault(), "");
    EXPECT_EQ(trim_region(0), 16 * kSliceBytes);
    EXPECT_EQ(trim_region(0), 0u);
    EXPECT_EQ(give_back_calls, 2);
    EXPECT_EQ(region_figures().given_back, dirty.given_back + 2);
    EXPECT_EQ(region_figures().dirty_bytes, 0u);
    const Span clean = acquire_now(64);
    EXPECT_EQ(clean.dirty_slices, 0u);
    EXPECT_TRUE(test::is_zero(slice_memory(clean.first), 64 * kSliceBytes));
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, TrimKeepsWhatItIsTold) {
  in_child([] {
    trim_region(0);
    std::vector<Slice> spans;
    for (int i = 0; i < 32; ++i) spans.push_back(acquire_now(16).first);
    for (int i = 0; i < 32; i += 2) release_now(spans[i], 16);  // in pieces of 1 MiB
    ASSERT_EQ(region_figures().dirty_bytes, 16u << 20);
    EXPECT_EQ(trim_region(64 << 20), 0u);
    EXPECT_EQ(trim_region(10 << 20), 6u << 20);
    EXPECT_EQ(region_figures().dirty_bytes, 10u << 20);
    EXPECT_EQ(region_fault(), "");
  });
}

// A clock of the test's own.
constexpr std::uint64_t kMinuteNs = 60'000'000'000;
std::uint64_t clock_ns = 0;
void take_over_clock() {
  clock_ns = region_system.now_ns();
  region_system.now_ns = [] { return clock_ns; };
}

TEST(HostRegionTest, DirtyMemoryIsBounded) {
  in_child([] {
    take_over_clock();
    clock_ns += kMinuteNs;  // forgets what other tests wanted again
    std::vector<Slice> spans;
    for (int i = 0; i < 512; ++i) spans.push_back(acquire_now(16).first);  // 512 MiB, never touched
    for (const Slice first : spans) {
      release_now(first, 16);
      const RegionFigures now = region_figures();
      ASSERT_LE(now.dirty_bytes, std::max<std::uint64_t>(64 << 20, now.in_use_bytes / 2));
    }
    EXPECT_EQ(region_fault(), "");
  });
}

// --- What large blocks find resident
// A span in use whose first slices are dirty, the others clean, or the other way round.
struct TwoSorts {
  Slice first;
  std::uint32_t clean, dirty;
  bool dirty_is_first;

  Slice dirty_slice() const { return dirty_is_first ? first : first + clean; }
  void release() const {
    const Slice clean_slice = dirty_is_first ? first + dirty : first;
    release_now(clean_slice, clean);
    trim_region(0);
    touch(dirty_slice(), dirty, 1);
    release_now(dirty_slice(), dirty);
  }
};

TEST(HostRegionTest, WhatIsTooLargeForResidentMemoryTakesItWithItsNeighbour) {
  for (const bool dirty_is_first : {true, false})
    in_child([dirty_is_first] {
      trim_region(0);
      const TwoSorts span{acquire_now(401).first, 300, 100, dirty_is_first};
      span.release();  // the last slice stays in use
      const Span taken = acquire_now(130);
      EXPECT_EQ(taken.first, dirty_is_first ? span.first : span.first + 400 - 130);
      EXPECT_EQ(taken.dirty_first, span.dirty_slice());
      EXPECT_EQ(taken.dirty_slices, 100u);
      EXPECT_EQ(region_figures().dirty_bytes, 0u);
      EXPECT_EQ(region_fault(), "");
    });
}

TEST(HostRegionTest, ASpanGrowsIntoBothSorts) {
  in_child([] {
    trim_region(0);
    const Slice first = acquire_now(500).first;
    TwoSorts{first + 100, 200, 100, true}.release();
    EXPECT_FALSE(extend_span(first + 100, 301));
    EXPECT_TRUE(extend_span(first + 100, 300));
    EXPECT_EQ(region_figures().dirty_bytes, 0u);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, AskedForResidentMemoryOnlyThereMayBeNone) {
  in_child([] {
    trim_region(0);
    TwoSorts{acquire_now(400).first, 300, 100, true}.release();
    EXPECT_FALSE(acquire_now(101, 1, Prefer::dirty_only).first);
    EXPECT_EQ(acquire_now(100, 1, Prefer::dirty_only).dirty_slices, 100u);
    EXPECT_EQ(region_fault(), "");
  });
}

struct Traffic {
  std::uint32_t slices;  // a part of a span, on average
  unsigned live;
};

// Spans of a third to five thirds of the size, replaced at random: how much was given back, as a ratio to what was
// taken, and the most that was in use and resident.
struct Kept {
  double given_back;
  std::uint64_t in_use_max, resident_max;
};

Kept replace_at_random(const Traffic& traffic, std::mt19937& random) {
  trim_region(0);
  std::vector<std::pair<Slice, std::uint32_t>> live(traffic.live);
  std::uint64_t taken = 0, in_use_max = 0, resident_max = 0;
  for (unsigned step = 0; step < 60 * traffic.live + 600; ++step) {
    auto& [first, slices] = live[step < traffic.live ? step : random() % traffic.live];
    if (first) release_now(first, slices);
    slices = traffic.slices / 3 + random() % (traffic.slices * 4 / 3 + 1);
    first = acquire_now(slices).first;
    const RegionFigures now = region_figures();
    in_use_max = std::max(in_use_max, now.in_use_bytes);
    resident_max = std::max(resident_max, now.in_use_bytes + now.dirty_bytes);
    taken += slices;
    if (step == 10 * traffic.live + 100) taken = bytes_given_back = 0;
  }
  const auto given_back = static_cast<double>(bytes_given_back);
  for (const auto& [first, slices] : live) release_now(first, slices);
  return {given_back / static_cast<double>(taken * kSliceBytes), in_use_max, resident_max};
}

TEST(HostRegionTest, LargeBlocksFindMostOfTheirMemoryResident) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  for (const std::uint32_t slices : {32u, 64u, 256u, 1024u})
    for (const unsigned live : {2u, 20u, 200u})
      in_child([=] {
        SCOPED_TRACE(testing::Message() << live << " of " << slices << " slices");
        std::mt19937 random(seed);
        intercept_system();
        take_over_clock();
        clock_ns += kMinuteNs;  // forgets what other tests had in use
        const Kept kept = replace_at_random({slices, live}, random);
        EXPECT_LT(kept.given_back, slices == 1024 && live == 2 ? 0.3 : 0.1);
        EXPECT_LT(kept.resident_max, kept.in_use_max / 10 * 11 + (1 << 20));
        EXPECT_EQ(region_fault(), "");
      });
}

TEST(HostRegionTest, WhatWasInUseLongAgoIsNotKept) {
  in_child([] {
    take_over_clock();
    for (const bool long_ago : {false, true}) {
      trim_region(0);
      // The last slice of each stays in use.
      const TwoSorts span{acquire_now(2001).first, 1100, 900, true};
      span.release();
      const Slice other = acquire_now(5001).first;
      release_now(other, 5000);
      trim_region(900 * kSliceBytes);
      const std::uint64_t in_use = region_figures().in_use_bytes;
      for (int i = 0; i < 3 && long_ago; ++i) {
        clock_ns += kMinuteNs;
        release_now(acquire_now(6, 1, Prefer::clean).first, 6);
      }
      acquire_now(10'000);
      EXPECT_EQ(region_figures().dirty_bytes > in_use / 10 + (1 << 20), !long_ago);
      EXPECT_EQ(region_fault(), "");
    }
  });
}

// While a block moves both of its places are in use: that is no reason to keep all that is dirty.
TEST(HostRegionTest, WhatIsReplacedKeepsNoDirtyMemory) {
  in_child([] {
    intercept_system();
    take_over_clock();
    trim_region(0);
    const auto slices = static_cast<std::uint32_t>(region_figures().in_use_bytes / kSliceBytes) + 5000;
    const Slice replaced = acquire_now(slices).first;
    const Slice dirty = acquire_now(2001).first;
    ASSERT_TRUE(replaced && dirty);
    release_now(dirty, 2000);  // the last slice stays in use
    ASSERT_GE(region_figures().dirty_bytes, 2000 * kSliceBytes);
    clock_ns += kMinuteNs;
    ASSERT_TRUE(acquire_now(slices + 100, 1, Prefer::clean, slices).first);
    EXPECT_LT(region_figures().dirty_bytes, std::uint64_t{slices + slices} / 8 * kSliceBytes);
    release_now(replaced, slices);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, WhatWasSoonWantedAgainStaysTheNextTime) {
  in_child([] {
    intercept_system();
    take_over_clock();
    const auto given_back_after = [](std::uint64_t pause_ns) {
      clock_ns += pause_ns;
      const Slice all = acquire_now(5'000).first;
      bytes_given_back = 0;
      release_now(all, 5'000);
      return bytes_given_back >> 20;
    };
    constexpr std::uint64_t kSecondNs = 1'000'000'000;
    EXPECT_GT(given_back_after(kMinuteNs), 200u);
    EXPECT_GT(given_back_after(2 * kSecondNs), 200u);  // not that soon
    EXPECT_EQ(given_back_after(kSecondNs / 2), 0u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(given_back_after(3 * kSecondNs), 0u);
    EXPECT_GT(given_back_after(kMinuteNs), 200u);
    // Where no span is taken or released any more it goes, too.
    EXPECT_EQ(given_back_after(kSecondNs / 2), 0u);
    end_regrets();
    EXPECT_EQ(bytes_given_back, 0u);
    clock_ns += kMinuteNs;
    end_regrets();
    do_chosen_work();
    EXPECT_GT(bytes_given_back >> 20, 200u);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, WhatIsNotResidentByChoiceLeavesTheRestAlone) {
  in_child([] {
    intercept_system();
    take_over_clock();
    release_now(acquire_now(900).first, 900);
    bytes_given_back = 0;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(acquire_now(1, 1, Prefer::clean).dirty_slices, 0u);
    EXPECT_EQ(bytes_given_back, 0u);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, ThePeakIsThatOfAllTimes) {
  in_child([] {
    const RegionFigures before = region_figures();
    const auto slices = static_cast<std::uint32_t>(before.peak_in_use_bytes / kSliceBytes);
    const Span span = acquire_now(slices + 10);
    ASSERT_TRUE(span.first);
    const RegionFigures peak = region_figures();
    EXPECT_EQ(peak.peak_in_use_bytes, before.in_use_bytes + (slices + 10) * kSliceBytes);
    EXPECT_GE(peak.peak_at_ns, before.peak_at_ns);
    // A span that only replaces another is not one more.
    const Span instead = acquire_now(50, 1, Prefer::clean, 50);
    EXPECT_EQ(region_figures().peak_in_use_bytes, peak.peak_in_use_bytes);
    release_clean_span(instead.first, 50);
    release_now(span.first, slices + 10);
    EXPECT_EQ(region_figures().peak_in_use_bytes, peak.peak_in_use_bytes);
  });
}

TEST(HostRegionTest, MoreThanTheWindowIsRefusedWithoutASystemCall) {
  in_child([] {
    intercept_system();
    for (const std::uint32_t slices : {0x7fffffffu, 0xffffffffu}) {
      EXPECT_FALSE(acquire_now(slices).first);
      EXPECT_FALSE(acquire_now(slices, 0x80000000u).first);
      EXPECT_FALSE(acquire_now(1, slices).first);
    }
    EXPECT_EQ(map_calls, 0);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, WithoutMemoryNothingChangesAndLaterItWorks) {
  in_child([] {
    intercept_system();
    map_error = ENOMEM;
    const RegionFigures before = region_figures();
    for (int failing = 2; failing <= 6; ++failing) {
      failing_maps = failing;
      EXPECT_FALSE(acquire_now(more_than_is_free()).first);
      EXPECT_EQ(region_figures().mapped_bytes, before.mapped_bytes);
      EXPECT_EQ(region_figures().in_use_bytes, before.in_use_bytes);
      EXPECT_EQ(region_fault(), "");
    }
    failing_maps = 0;
    const std::uint32_t slices = more_than_is_free();
    EXPECT_TRUE(acquire_now(slices).first);
    EXPECT_EQ(region_figures().in_use_bytes, before.in_use_bytes + slices * kSliceBytes);
    EXPECT_EQ(region_figures().grown, before.grown + 1);
    EXPECT_EQ(region_fault(), "");
  });
}

// The system has no more memory, and what is wanted has lain idle for so long that it was about to go back.
TEST(HostRegionTest, WhatWasIdleForLongIsToBeHadWhereTheSystemRefuses) {
  for (const Prefer prefer : {Prefer::dirty, Prefer::clean})
    in_child([prefer] {
      constexpr std::uint64_t kSecondNs = 1'000'000'000;
      take_over_clock();
      trim_region(0);
      // Larger than what else is free, and of both sorts, so that a clean one of this size has to be made of it.
      const std::uint32_t slices = more_than_is_free() + 400;
      const TwoSorts span{acquire_now(slices).first, slices - 100, 100, true};
      give_back_after(kSecondNs);
      span.release();
      intercept_system();
      map_error = ENOMEM;
      failing_maps = 1 << 30;
      clock_ns += 2 * kSecondNs;
      EXPECT_TRUE(acquire_now(slices, 1, prefer).first);
      EXPECT_EQ(region_fault(), "");
    });
}

TEST(HostRegionTest, WhereAChunkIsTooMuchTheBareSpanIsTried) {
  in_child([] {
    intercept_system();
    map_error = ENOMEM;
    failing_maps = 1;
    // One that is no whole number of chunks, which are 4 MiB or a sixteenth of what is in use: else there is one try.
    const std::uint64_t chunk = std::max<std::uint64_t>(4 << 20, region_figures().in_use_bytes / 16) / kSliceBytes;
    std::uint32_t slices = more_than_is_free();
    if (slices % chunk == 0) ++slices;
    const std::uint64_t mapped = region_figures().mapped_bytes;
    EXPECT_TRUE(acquire_now(slices).first);
    EXPECT_EQ(map_calls, 2);
    EXPECT_EQ(region_figures().mapped_bytes, mapped + slices * kSliceBytes);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, ForeignMappingsAreGoneAround) {
  for (const int collisions : {1, 2, 5})
    in_child([collisions] {
      intercept_system();
      map_error = EEXIST;
      failing_maps = collisions;
      const Slice end = region_end();
      const std::uint32_t slices = more_than_is_free();
      const std::uint64_t mapped = region_figures().mapped_bytes;
      const Span span = acquire_now(slices);
      ASSERT_TRUE(span.first);
      EXPECT_GT(span.first, end);
      EXPECT_EQ(map_calls, collisions + 1);
      EXPECT_TRUE(!span.dirty_slices && is_untouched(span.first, slices));
      touch(span.first, slices, 1);
      EXPECT_GE(region_figures().mapped_bytes, mapped + slices * kSliceBytes);
      EXPECT_EQ(region_fault(), "");
      release_now(span.first, slices);
      EXPECT_EQ(region_fault(), "");
      // The gap does not belong to the pool.
      EXPECT_EQ(page_at(end)->state, PageState::absent);
      EXPECT_EQ(deallocate(slice_memory(end)), Freed::invalid);
    });
}

TEST(HostRegionTest, AWindowFullOfForeignMappingsIsNoMemory) {
  in_child([] {
    intercept_system();
    map_error = EEXIST;
    failing_maps = 1 << 30;
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(acquire_now(more_than_is_free()).first);
    EXPECT_LT(map_calls, 1000);
    EXPECT_EQ(region_fault(), "");
    const Span span = acquire_now(1);  // the memory that there is serves on
    EXPECT_TRUE(span.first || !region_figures().largest_free_bytes);
  });
}

#if !CISTERN_TEST_ASAN
TEST(HostRegionTest, AForeignMappingStaysAsItIs) {
  in_child([] {
    void* const wanted = slice_memory(region_end()) + page_bytes();
    void* const foreign =
        mmap(wanted, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(foreign, wanted);
    std::memset(foreign, 42, page_bytes());
    const std::uint32_t slices = more_than_is_free();
    const Span span = acquire_now(slices);
    ASSERT_TRUE(span.first);
    touch(span.first, slices, 1);
    EXPECT_TRUE(static_cast<char*>(foreign) < slice_memory(span.first) ||
                static_cast<char*>(foreign) >= slice_memory(span.first + slices));
    for (std::size_t at = 0; at < page_bytes(); ++at) ASSERT_EQ(static_cast<char*>(foreign)[at], 42);
    EXPECT_EQ(region_fault(), "");
  });
}
#endif

TEST(HostRegionTest, DescriptorsThatCannotBeWrittenAreNoMemory) {
  in_child([] {
    intercept_system();
    // Enough for descriptors that are not there yet.
    const std::uint32_t slices = std::max(more_than_is_free(), 4096u);
    const std::uint64_t mapped = region_figures().mapped_bytes;
    failing_describe = 100;
    EXPECT_FALSE(acquire_now(slices).first);
    EXPECT_EQ(region_figures().mapped_bytes, mapped);
    EXPECT_EQ(region_fault(), "");
    failing_describe = 0;
    EXPECT_TRUE(acquire_now(slices).first);
    EXPECT_EQ(region_fault(), "");
  });
}

TEST(HostRegionTest, AdviceReachesEveryChunk) {
  in_child([] {
    static std::map<char*, std::size_t> advised;
    const auto advise = [](void* memory, std::size_t bytes) { advised[static_cast<char*>(memory)] += bytes; };
    const auto is_advised = [](char* begin, std::size_t bytes) {
      for (const auto& [at, length] : advised)
        if (at <= begin && begin + bytes <= at + length) return true;
      return false;
    };
    const Span before = acquire_now(4);
    advise_chunks(advise);
    EXPECT_TRUE(is_advised(slice_memory(before.first), 4 * kSliceBytes));
    const Slice end = region_end();
    ASSERT_TRUE(acquire_now(more_than_is_free()).first);
    EXPECT_TRUE(is_advised(slice_memory(end), (region_end() - end) * kSliceBytes));
    // Not the foreign mapping that lies in between.
    intercept_system();
    map_error = EEXIST;
    failing_maps = 2;
    const Slice gap = region_end();
    const Slice behind = acquire_now(more_than_is_free()).first;
    ASSERT_TRUE(behind);
    EXPECT_GE(behind, gap + 3 * 1024);  // two steps
    advised.clear();
    advise_chunks(advise);
    EXPECT_TRUE(is_advised(slice_memory(before.first), 4 * kSliceBytes));
    EXPECT_TRUE(is_advised(slice_memory(end), (gap - end) * kSliceBytes));
    EXPECT_TRUE(is_advised(slice_memory(behind), (region_end() - behind) * kSliceBytes));
    std::size_t sum = 0;
    for (const auto& [at, length] : advised) {
      EXPECT_TRUE(at + length <= slice_memory(gap) || at >= slice_memory(behind));
      sum += length;
    }
    EXPECT_EQ(sum, region_figures().mapped_bytes);
    EXPECT_EQ(region_fault(), "");
    advise_chunks(nullptr);
    advised.clear();
    ASSERT_TRUE(acquire_now(more_than_is_free()).first);
    EXPECT_TRUE(advised.empty());
  });
}

}  // namespace
}  // namespace cistern::host_pool
