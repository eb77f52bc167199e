// Ranges of addresses that do not overlap, found by any address inside: for questions about interior pointers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern {

template <class Value>
class RangeIndex {
 public:
  struct Range {
    std::uintptr_t first;
    std::uint64_t bytes;
    Value value;
  };

  void insert(std::uintptr_t first, std::uint64_t bytes, const Value& value) {
    Locked hold(lock_);
    ranges_.insert_or_assign(first, Range{first, bytes, value});
  }
  // Of the range that begins there, or a new one.
  template <class Change>
  void change(std::uintptr_t first, std::uint64_t bytes, Change change) {
    Locked hold(lock_);
    Range& range = ranges_.try_emplace(first, Range{first, bytes, Value{}}).first->second;
    range.bytes = std::max(range.bytes, bytes);
    change(range.value);
  }
  void erase(std::uintptr_t first) {
    erase_if(first, [](const Value&) { return true; });
  }
  template <class When>
  void erase_if(std::uintptr_t first, When when) {
    Locked hold(lock_);
    auto found = ranges_.find(first);
    if (found != ranges_.end() && when(found->second.value)) ranges_.erase(found);
  }
  // All that have an address in common with this range: visit(value).
  template <class Visit>
  void erase_within(std::uintptr_t first, std::uint64_t bytes, Visit visit) {
    Locked hold(lock_);
    auto at = ranges_.upper_bound(first);
    if (at != ranges_.begin() && first - std::prev(at)->second.first < std::prev(at)->second.bytes) --at;
    while (at != ranges_.end() && at->first < first + bytes) {
      visit(at->second.value);
      at = ranges_.erase(at);
    }
  }
  std::optional<Range> find(std::uintptr_t address) {
    Locked hold(lock_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return std::nullopt;
    const Range& range = std::prev(after)->second;
    if (address - range.first >= range.bytes) return std::nullopt;
    return range;
  }
  void clear() {
    Locked hold(lock_);
    ranges_.clear();
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  Lock lock_;
  std::map<std::uintptr_t, Range, std::less<>, InternalAllocator<std::pair<const std::uintptr_t, Range>>> ranges_;
};

}  // namespace cistern
