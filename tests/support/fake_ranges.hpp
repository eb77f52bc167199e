// A driver that maps pieces of memory into ranges, for tests. It checks every call against what is mapped. Any call can
// be made to fail, memory has an end, and fences are flags that the test settles.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "pool/ranges/range_source.hpp"

namespace cistern::test {

class FakeRanges {
 public:
  using Handle = int;
  using Error = int;
  struct Fence {
    int gate = 0;  // it has settled when the gate is not among the closed ones
  };
  static constexpr int kOutOfMemory = -2, kBroken = -9, kNoAddresses = -7;
  static constexpr std::uint64_t kPiece = 1 << 16;

  std::uint64_t granularity() const { return kPiece; }
  Acquired<Handle, Error> create(std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    if (fails()) return {0, kBroken, false};
    if (bytes == 0 || bytes % kPiece) ++wrong_calls;
    if (physical_ + bytes > limit_bytes) {
      ++refusals;
      return {0, kOutOfMemory, false};
    }
    physical_ += bytes;
    physical_peak = std::max(physical_peak, physical_);
    handles_[++last_] = bytes;
    return {last_, 0, true};
  }
  bool has_room(std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    return bytes <= limit_bytes && physical_ <= limit_bytes - bytes;
  }
  void destroy(Handle handle) {
    if (meanwhile_back) meanwhile_back();
    std::lock_guard hold(mutex_);
    if (!handles_.contains(handle) || mapped_.contains(handle)) ++wrong_calls;
    physical_ -= handles_[handle];
    handles_.erase(handle);
  }
  Error map(std::uint64_t first, std::uint64_t bytes, Handle handle) {
    std::lock_guard hold(mutex_);
    if (fails()) return kBroken;
    const auto next = at_.lower_bound(first + 1);
    const bool free = (next == at_.end() || next->first >= first + bytes) &&
                      (next == at_.begin() || std::prev(next)->second.end <= first);
    if (!free || first % kPiece || !handles_.contains(handle) || handles_[handle] != bytes ||
        !mapped_.insert(handle).second)
      ++wrong_calls;
    at_[first] = {first + bytes, handle, false};
    return 0;
  }
  Error allow_access(std::uint64_t first, std::uint64_t bytes) {
    if (meanwhile_access) meanwhile_access();
    std::lock_guard hold(mutex_);
    if (meanwhile_access && !at_.contains(first)) return kBroken;
    if (fails()) return kBroken;
    if (!for_whole_pieces(first, bytes, [](Mapping& mapping) { mapping.accessible = true; })) ++wrong_calls;
    return 0;
  }
  Error unmap(std::uint64_t first, std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    if (unmaps_fail && fails()) return kBroken;
    if (!for_whole_pieces(first, bytes, [&](Mapping& mapping) { mapped_.erase(mapping.handle); })) ++wrong_calls;
    at_.erase(at_.lower_bound(first), at_.lower_bound(first + bytes));
    return 0;
  }
  Settled settled(Fence& fence) {
    if (meanwhile_asked) meanwhile_asked();
    std::lock_guard hold(mutex_);
    return closed_gates.contains(fence.gate) ? Settled::no : Settled::yes;
  }
  static bool failed(Error error) { return error != 0; }
  static bool out_of_memory(Error error) { return error == kOutOfMemory; }
  static Error no_addresses() { return kNoAddresses; }
  static Error no_room() { return kOutOfMemory; }

  bool is_accessible(std::uint64_t first, std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    for (std::uint64_t at = first; at < first + bytes;) {
      const auto next = at_.upper_bound(at);
      if (next == at_.begin()) return false;
      const Mapping& mapping = std::prev(next)->second;
      if (mapping.end <= at || !mapping.accessible) return false;
      at = mapping.end;
    }
    return true;
  }
  void open(int gate) {
    std::lock_guard hold(mutex_);
    closed_gates.erase(gate);
  }
  void close(int gate) {
    std::lock_guard hold(mutex_);
    closed_gates.insert(gate);
  }
  std::uint64_t physical() {
    std::lock_guard hold(mutex_);
    return physical_;
  }

  std::set<int> closed_gates;
  std::uint64_t limit_bytes = ~std::uint64_t{0};
  int fail_every = 0;  // each n-th call that can fail; 0: none
  bool unmaps_fail = false;
  int wrong_calls = 0;
  std::uint64_t physical_peak = 0;
  std::atomic<int> refusals{0};  // for lack of memory
  // Called while a fence is asked, before memory goes back, and before access is set.
  std::function<void()> meanwhile_asked, meanwhile_back, meanwhile_access;

 private:
  struct Mapping {
    std::uint64_t end;
    Handle handle;
    bool accessible;
  };
  bool fails() { return fail_every && ++calls_ % fail_every == 0; }
  template <class Change>
  bool for_whole_pieces(std::uint64_t first, std::uint64_t bytes, Change change) {
    std::uint64_t at = first;
    for (auto mapping = at_.find(first); mapping != at_.end() && mapping->first == at && at < first + bytes;
         ++mapping) {
      change(mapping->second);
      at = mapping->second.end;
    }
    return at == first + bytes;
  }

  std::mutex mutex_;
  std::map<Handle, std::uint64_t> handles_;
  std::set<Handle> mapped_;
  std::map<std::uint64_t, Mapping> at_;
  std::uint64_t physical_ = 0;
  int last_ = 0, calls_ = 0;
};

}  // namespace cistern::test
