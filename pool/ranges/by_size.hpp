// Free extents by their size: the smallest that fits is found in a time that hardly depends on how many there are.
//
// Small sizes have a list each; larger ones have a treap for each quarter of a power of two.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace cistern::ranges {

// All sizes and addresses are multiples of it.
constexpr std::uint64_t kGranule = 512;

// Names the work that may use a free extent: kAnyOrder is all work; another value is work of that order (a stream),
// until its fence has settled.
using Order = std::uintptr_t;
constexpr Order kAnyOrder = 0;
// The order of blocks that wait for all work of their context. No request has it.
constexpr Order kContextOrder = 1;
// The order of extents whose fences settle in no order.
constexpr Order kNoOrder = ~Order{0};

enum class State : std::uint8_t { bare, free, live, busy, retired };

// The members that every block needs come first: they have a cache line.
struct Extent {
  std::uint64_t first, bytes;
  Extent *before, *after;    // by address
  Extent *smaller, *larger;  // its places among those of its state and order, by size
  Order order;               // only a free extent has one
  State state;
  bool is_noted;      // it is among those
  std::uint8_t zone;  // the pool's number for the Extents that it belongs to
  bool retires;       // a free extent of kNoOrder: it is retired when its fence settles
  // For the tree by size, which is a heap by this random number, so that it stays flat.
  std::uint32_t rank;
  // A free extent with an order: grows with time, as its last part was freed; and its places by that.
  std::uint64_t stamp;
  Extent *older, *newer;

  std::uint64_t end() const { return first + bytes; }
};

// Extents by size, then address: a treap; the extents themselves are its nodes.
class Treap {
 public:
  bool empty() const { return !root_; }
  // The smallest with at least so many bytes, at the lowest address; null: there is none.
  Extent* best_fit(std::uint64_t bytes) const {
    Extent* best = nullptr;
    for (Extent* at = root_; at;) {
      if (at->bytes >= bytes) {
        best = at;
        at = at->smaller;
      } else {
        at = at->larger;
      }
    }
    return best;
  }
  Extent* largest() const {
    Extent* at = root_;
    while (at && at->larger) at = at->larger;
    return at;
  }
  // The largest that comes before it in this order; null: it is the smallest.
  Extent* next_smaller(const Extent& extent) const {
    Extent* next = nullptr;
    for (Extent* at = root_; at;) {
      if (comes_before(*at, extent)) {
        next = at;
        at = at->larger;
      } else {
        at = at->smaller;
      }
    }
    return next;
  }

  void insert(Extent* extent) {
    Extent** place = &root_;
    while (*place && (*place)->rank >= extent->rank)
      place = comes_before(*extent, **place) ? &(*place)->smaller : &(*place)->larger;
    split(*place, *extent, extent->smaller, extent->larger);
    *place = extent;
  }
  void erase(Extent* extent) {
    Extent** place = &root_;
    while (*place != extent) place = comes_before(*extent, **place) ? &(*place)->smaller : &(*place)->larger;
    *place = joined(extent->smaller, extent->larger);
  }

 private:
  static bool comes_before(const Extent& a, const Extent& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.first < b.first;
  }
  // The tree's extents that come before `by`, and those that come behind it.
  static void split(Extent* tree, const Extent& by, Extent*& before, Extent*& behind) {
    Extent **last_before = &before, **first_behind = &behind;
    while (tree) {
      if (comes_before(*tree, by)) {
        *last_before = tree;
        last_before = &tree->larger;
        tree = tree->larger;
      } else {
        *first_behind = tree;
        first_behind = &tree->smaller;
        tree = tree->smaller;
      }
    }
    *last_before = *first_behind = nullptr;
  }
  static Extent* joined(Extent* smaller, Extent* larger) {
    Extent* root = nullptr;
    for (Extent** place = &root;;) {
      if (!smaller || !larger) {
        *place = smaller ? smaller : larger;
        return root;
      }
      if (smaller->rank >= larger->rank) {
        *place = smaller;
        place = &smaller->larger;
        smaller = *place;
      } else {
        *place = larger;
        place = &larger->smaller;
        larger = *place;
      }
    }
  }

  Extent* root_ = nullptr;
};

// Extents of one size: the one that came last is the first.
class ExtentList {
 public:
  bool empty() const { return !first_; }
  Extent* first() const { return first_; }
  void insert(Extent* extent) {
    extent->smaller = nullptr;
    extent->larger = first_;
    if (first_) first_->smaller = extent;
    first_ = extent;
  }
  void erase(Extent* extent) {
    if (extent->larger) extent->larger->smaller = extent->smaller;
    (extent->smaller ? extent->smaller->larger : first_) = extent->larger;
  }

 private:
  Extent* first_ = nullptr;
};

class BySize {
 public:
  static constexpr std::uint64_t kListed = 64;  // granules: smaller ones are in lists
  static constexpr std::uint64_t kListedBytes = kListed * kGranule;

  bool empty() const { return next_bin(0) == kBins; }
  // The smallest with at least so many bytes; null: there is none. Among larger ones, that at the lowest address.
  Extent* best_fit(std::uint64_t bytes) const {
    const std::size_t bin = bin_of(bytes);
    if (bin >= kListed)
      if (Extent* const extent = treaps_[bin - kListed].best_fit(bytes)) return extent;
    const std::size_t next = next_bin(bin < kListed ? bin : bin + 1);
    return next == kBins ? nullptr : next < kListed ? lists_[next].first() : treaps_[next - kListed].best_fit(0);
  }
  Extent* largest() const { return largest_below(kBins); }
  // One that comes behind this one, none of them twice: larger ones by size and address. Null: there is none. A listed
  // one is among them; another may be the copy of one that was.
  Extent* next_smaller(const Extent& extent) const {
    const std::size_t bin = bin_of(extent.bytes);
    Extent* const next = bin < kListed ? extent.larger : treaps_[bin - kListed].next_smaller(extent);
    return next ? next : largest_below(bin);
  }

  void insert(Extent* extent) {
    const std::size_t bin = bin_of(extent->bytes);
    if (bin < kListed)
      lists_[bin].insert(extent);
    else
      treaps_[bin - kListed].insert(extent);
    used_[bin / 64] |= std::uint64_t{1} << bin % 64;
  }
  void erase(Extent* extent) {
    const std::size_t bin = bin_of(extent->bytes);
    if (bin < kListed)
      lists_[bin].erase(extent);
    else
      treaps_[bin - kListed].erase(extent);
    if (bin < kListed ? lists_[bin].empty() : treaps_[bin - kListed].empty())
      used_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  }

 private:
  static constexpr std::size_t kWords = 4, kBins = kWords * 64, kTreaps = kBins - kListed;

  // 4 bins for each power of two: the two bits behind the first one. The last has all that is larger.
  static std::size_t bin_of(std::uint64_t bytes) {
    const std::uint64_t granules = bytes / kGranule;
    if (granules < kListed) return granules;
    const auto power = static_cast<std::size_t>(std::bit_width(granules)) - 1;
    return std::min(kListed + (power - 6) * 4 + (granules >> (power - 2) & 3), kBins - 1);
  }
  // The first bin from here on that has extents; kBins: there is none.
  std::size_t next_bin(std::size_t bin) const {
    for (std::size_t word = bin / 64; word < kWords; ++word) {
      const std::uint64_t used = used_[word] & (word == bin / 64 ? ~std::uint64_t{0} << bin % 64 : ~std::uint64_t{0});
      if (used) return word * 64 + static_cast<std::size_t>(std::countr_zero(used));
    }
    return kBins;
  }
  Extent* largest_below(std::size_t bin) const {
    while (bin-- > 0)
      if (used_[bin / 64] >> bin % 64 & 1)
        return bin < kListed ? lists_[bin].first() : treaps_[bin - kListed].largest();
    return nullptr;
  }

  std::uint64_t used_[kWords] = {};
  ExtentList lists_[kListed];
  Treap treaps_[kTreaps];
};

}  // namespace cistern::ranges
