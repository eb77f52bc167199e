// A set of numbers as ranges that neither touch nor overlap, in order: which bytes of a buffer are newer.
#pragma once
#include <algorithm>
#include <cstddef>

#include "pool/base/internal_memory.hpp"

namespace cistern {

struct Range {
  std::size_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

class Parts {
 public:
  Parts() = default;
  explicit Parts(Range only) { add(only); }

  bool empty() const { return ranges_.empty(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }
  void clear() { ranges_.clear(); }
  bool operator==(const Parts&) const = default;

  void add(Range range) {
    if (range.begin >= range.end) return;
    const auto first = touching(range.begin);
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
      range.begin = std::min(range.begin, last->begin);
      range.end = std::max(range.end, last->end);
    }
    if (first == last) {
      ranges_.insert(first, range);
    } else {
      *first = range;
      ranges_.erase(first + 1, last);
    }
  }

  void remove(Range range) {
    if (range.begin >= range.end) return;
    auto at = touching(range.begin);
    while (at != ranges_.end() && at->begin < range.end) {
      const Range had = *at;
      at = ranges_.erase(at);
      if (had.begin < range.begin) at = ranges_.insert(at, {had.begin, std::min(had.end, range.begin)}) + 1;
      if (had.end > range.end) at = ranges_.insert(at, {std::max(had.begin, range.end), had.end}) + 1;
    }
  }

  // Of all these numbers those that lie in `range`, and those that do not.
  Parts within(Range range) const {
    Parts parts;
    for (const Range& one : ranges_) parts.add({std::max(one.begin, range.begin), std::min(one.end, range.end)});
    return parts;
  }
  Parts without(Range range) const {
    Parts parts = *this;
    parts.remove(range);
    return parts;
  }

  // The first numbers at or after `from`. Empty: there are none.
  Range next(std::size_t from) const {
    const auto one =
        std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& at) { return at.end <= from; });
    return one == ranges_.end() ? Range{} : Range{std::max(one->begin, from), one->end};
  }

 private:
  // The first that ends at `at` or behind it.
  Vector<Range>::iterator touching(std::size_t at) {
    return std::partition_point(ranges_.begin(), ranges_.end(), [at](const Range& one) { return one.end < at; });
  }

  Vector<Range> ranges_;
};

}  // namespace cistern
