// Whether copies ask the system to read ahead, how far, and what they find out.
#include "shim/staging/read_ahead.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// No memory is at these addresses.
const char* at(std::size_t mebibyte) { return reinterpret_cast<const char*>((std::size_t{1} << 40) + mebibyte * kMiB); }
std::size_t mebibyte_of(const char* address) { return static_cast<std::size_t>(address - at(0)) / kMiB; }

// A file with the first so many MiB in the page cache. Each look at the clock is a piece of 4 MiB later, at a rate that
// depends on whether anything was asked for.
class Pages : public FilePages {
 public:
  explicit Pages(std::size_t cached, double without = 0.1, double with = 2)
      : cached_(cached), without_(without), with_(with) {}
  bool is_cached(const char* page) const override { return page < at(cached_); }
  void read_ahead(const char* first, const char* end) const override {
    asked.emplace_back(mebibyte_of(first), mebibyte_of(end));
  }
  std::uint64_t now_ns() const override {
    return now_ns_ += static_cast<std::uint64_t>(4 * kMiB / (asked.empty() ? without_ : with_));
  }
  std::size_t asked_to() const { return asked.empty() ? 0 : asked.back().second; }
  std::size_t asked_bytes() const {
    std::size_t sum = 0;
    for (const auto& [first, end] : asked) sum += (end - first) * kMiB;
    return sum;
  }

  mutable std::vector<std::pair<std::size_t, std::size_t>> asked;

 private:
  std::size_t cached_;
  double without_, with_;
  mutable std::uint64_t now_ns_ = 0;
};

// In pieces of 4 MiB.
void copy(ReadAhead& ahead, const Pages& pages, std::size_t first, std::size_t end, std::size_t mapping_end) {
  ReadAhead::Copy copy = ahead.begin(at(first), (end - first) * kMiB, at(mapping_end));
  for (std::size_t piece = first; piece < end; piece += 4) copy.reads(at(piece), at(piece + 4), pages);
  ahead.end(copy);
}

// One that knows the disk as slow: it has read bytes far away.
class Slow : public ReadAhead {
 public:
  explicit Slow(double with = 2) {
    const Pages slow(0, 0.1, with);
    copy(*this, slow, 1 << 20, (1 << 20) + 40, 1 << 21);
  }
};

TEST(ReadAhead, AsksForNothingWhereTheDiskIsFast) {
  ReadAhead ahead;
  const Pages pages(0, 1.5);
  for (std::size_t first = 0; first < 1024; first += 64) copy(ahead, pages, first, first + 64, 1024);
  EXPECT_TRUE(pages.asked.empty());
}

TEST(ReadAhead, AsksWhereThatIsFaster) {
  ReadAhead ahead;
  const Pages pages(0, 0.5, 0.8);
  for (std::size_t first = 0; first < 1024; first += 64) copy(ahead, pages, first, first + 64, 1024);
  EXPECT_EQ(pages.asked_to(), 1024u);
}

TEST(ReadAhead, AsksNoMoreWhereThatIsSlower) {
  ReadAhead ahead;
  const Pages pages(0, 0.5, 0.4);
  for (std::size_t first = 0; first < 1024; first += 16) copy(ahead, pages, first, first + 16, 1024);
  EXPECT_GT(pages.asked_bytes(), 0u);
  EXPECT_LT(pages.asked_to(), 512u);
}

TEST(ReadAhead, OneThreadReadsWhatIsMissing) {
  ReadAhead ahead;
  const Pages pages(8);
  ReadAhead::Copy copy = ahead.begin(at(0), 64 * kMiB, at(64));
  EXPECT_TRUE(copy.reads(at(0), at(4), pages));
  EXPECT_FALSE(copy.reads(at(4), at(9), pages));
  EXPECT_FALSE(copy.reads(at(9), at(12), pages));
}

TEST(ReadAhead, AsksInTheOrderOfTheFileOnce) {
  Slow ahead;
  const Pages pages(0);
  copy(ahead, pages, 0, 64, 64);
  std::size_t next = 0;
  for (const auto& [first, end] : pages.asked) {
    EXPECT_EQ(first, next);
    next = end;
  }
  EXPECT_EQ(next, 64u);
}

TEST(ReadAhead, TheWindowGrowsToItsMost) {
  Slow ahead;
  const Pages pages(0);
  ReadAhead::Copy copy = ahead.begin(at(0), 1024 * kMiB, at(1024));
  std::vector<std::size_t> windows;
  for (std::size_t to = 4; to <= 32; to += 4) {
    copy.reads(at(to - 4), at(to), pages);
    windows.push_back(pages.asked_to() - to);
  }
  EXPECT_EQ(windows, (std::vector<std::size_t>{16, 32, 64, 128, 128, 128, 128, 128}));
}

TEST(ReadAhead, AloneACopyEndsWhereItEnds) {
  Slow ahead;
  const Pages pages(0);
  copy(ahead, pages, 0, 16, 1024);
  EXPECT_EQ(pages.asked_to(), 16u);
  copy(ahead, pages, 512, 528, 1024);
  EXPECT_EQ(pages.asked_to(), 528u);
}

TEST(ReadAhead, CopiesInARowReachBeyondToTheEndOfTheMapping) {
  Slow ahead;
  const Pages pages(0);
  copy(ahead, pages, 0, 16, 100);
  copy(ahead, pages, 16, 32, 100);
  EXPECT_GT(pages.asked_to(), 32u);
  copy(ahead, pages, 40, 56, 100);  // a gap that was read ahead
  EXPECT_EQ(pages.asked_to(), 100u);
  EXPECT_EQ(pages.asked_bytes(), 100 * kMiB);
}

TEST(ReadAhead, RowsOfSeveralThreadsAreKeptApart) {
  Slow ahead;
  const Pages pages(0);
  for (std::size_t step = 0; step < 4; ++step)
    for (std::size_t row = 0; row < 8; ++row)
      copy(ahead, pages, row * 1024 + step * 4, row * 1024 + step * 4 + 4, row * 1024 + 16);
  EXPECT_EQ(pages.asked_bytes(), 8 * 16 * kMiB);
}

TEST(ReadAhead, AsksForNothingThatIsThere) {
  Slow ahead;
  const Pages pages(32);
  copy(ahead, pages, 0, 64, 64);
  EXPECT_EQ(pages.asked.front().first, 32u);
  EXPECT_EQ(pages.asked_bytes(), 32 * kMiB);
}

TEST(ReadAhead, CopiesOfOtherMemoryAskForNothing) {
  const Pages pages(0);
  ReadAhead::Copy copy;
  EXPECT_TRUE(copy.reads(at(0), at(4), pages));
  ReadAhead().end(copy);
  EXPECT_TRUE(pages.asked.empty());
}

}  // namespace
}  // namespace cistern
