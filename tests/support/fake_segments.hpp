// A source of segments, for tests: it checks what comes back. Any acquire can be made to fail, memory has an end, and
// fences are flags that the test settles. No address comes twice.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "pool/source.hpp"

namespace cistern::test {

class FakeSegments {
 public:
  using Error = int;
  struct Fence {
    int gate = 0;  // it has settled when the gate is not among the closed ones
  };
  static constexpr int kOutOfMemory = -2, kBroken = -9;

  Acquired<std::uint64_t, Error> acquire(std::uint64_t bytes, Shortage shortage) {
    const auto acquired = try_to_acquire(bytes, shortage);
    if (acquired.error != kOutOfMemory || shortage != Shortage::makes_room || !make_room) return acquired;
    make_room();
    return try_to_acquire(bytes, shortage);
  }
  void release(std::uint64_t first) {
    if (meanwhile_back) meanwhile_back();
    std::lock_guard hold(mutex_);
    const auto found = out_.find(first);
    if (found == out_.end()) {
      ++wrong_calls;
      return;
    }
    physical_ -= found->second;
    out_.erase(found);
  }
  Settled settled(Fence& fence) {
    if (meanwhile_asked) meanwhile_asked();
    std::lock_guard hold(mutex_);
    return closed_gates_.contains(fence.gate) ? Settled::no : Settled::yes;
  }
  static bool out_of_memory(Error error) { return error == kOutOfMemory; }

  bool is_accessible(std::uint64_t first, std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    const auto next = out_.upper_bound(first);
    return next != out_.begin() && first + bytes <= std::prev(next)->first + std::prev(next)->second;
  }
  void open(int gate) {
    std::lock_guard hold(mutex_);
    closed_gates_.erase(gate);
  }
  void close(int gate) {
    std::lock_guard hold(mutex_);
    closed_gates_.insert(gate);
  }
  std::uint64_t physical() {
    std::lock_guard hold(mutex_);
    return physical_;
  }

  std::uint64_t limit_bytes = std::uint64_t{1} << 50;
  int fail_every = 0;  // each n-th call that can fail; 0: none
  int wrong_calls = 0;
  std::uint64_t largest_with_room = 0;  // asked for
  std::function<void()> make_room;      // null: there is none to be made
  std::atomic<int> refusals{0};         // for lack of memory
  // Called while a fence is asked, and before memory goes back.
  std::function<void()> meanwhile_asked, meanwhile_back;

 private:
  Acquired<std::uint64_t, Error> try_to_acquire(std::uint64_t bytes, Shortage shortage) {
    std::lock_guard hold(mutex_);
    if (shortage == Shortage::makes_room) largest_with_room = std::max(largest_with_room, bytes);
    if (fail_every && ++calls_ % fail_every == 0) return {0, kBroken, false};
    if (bytes > limit_bytes || physical_ + bytes > limit_bytes) {
      ++refusals;
      return {0, kOutOfMemory, false};
    }
    const std::uint64_t first = next_;
    next_ += bytes + 4096;
    physical_ += bytes;
    out_[first] = bytes;
    return {first, 0, true};
  }

  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> out_;
  std::set<int> closed_gates_;
  std::uint64_t physical_ = 0, next_ = std::uint64_t{1} << 40;
  int calls_ = 0;
};

}  // namespace cistern::test
