// A source for tests: chunks are reserved addresses without access, so a pool that touched one would crash; any call
// can be made to fail; a chunk's fence is a flag that the test settles. Counts everything and knows what is out.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "pool/source.hpp"

namespace cistern::test {

class FakeSource {
 public:
  struct Request {
    std::uint64_t bytes = 0;
  };
  using Chunk = std::uintptr_t;
  using Error = int;
  // Waits while `gate` names a closed gate.
  struct Fence {
    int gate = 0;
  };
  static constexpr int kOutOfMemory = -4, kOtherError = -30;

  FakeSource() {
    base_ = reinterpret_cast<std::uintptr_t>(
        mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    next_ = base_;
  }
  ~FakeSource() { munmap(reinterpret_cast<void*>(base_), kReserved); }

  Acquired<Chunk, Error> acquire(const Request& request) {
    const auto acquired = acquire_now(request);
    if (on_acquired) on_acquired();
    return acquired;
  }

  Acquired<Chunk, Error> acquire_now(const Request& request) {
    std::lock_guard hold(mutex_);
    ++acquires;
    if (++calls_ == fail_at) return {0, fail_with, false};
    if (bytes_out_ + request.bytes > limit_bytes) return {0, kOutOfMemory, false};
    const Chunk chunk = next_;
    next_ += 64;
    bytes_out_ += request.bytes;
    out_[chunk] = request.bytes;
    return {chunk, 0, true};
  }

  void release(Chunk chunk) {
    if (on_release) on_release();
    std::lock_guard hold(mutex_);
    ++releases;
    auto found = out_.find(chunk);
    if (found == out_.end()) {
      ++wrong_releases;
      return;
    }
    bytes_out_ -= found->second;
    released_in_order.push_back(chunk);
    out_.erase(found);
  }

  Settled settled(Chunk, Fence& fence) {
    if (on_settled) on_settled();
    std::lock_guard hold(mutex_);
    if (fence.gate == kNever) return Settled::never;
    return closed_gates.count(fence.gate) ? Settled::no : Settled::yes;
  }

  static bool out_of_memory(Error error) { return error == kOutOfMemory; }

  std::size_t out() {
    std::lock_guard hold(mutex_);
    return out_.size();
  }
  void open_gate(int gate) {
    std::lock_guard hold(mutex_);
    closed_gates.erase(gate);
  }

  // Run in the midst of a call, on the thread that makes it.
  std::function<void()> on_acquired, on_release, on_settled;
  static constexpr int kNever = -1;
  int fail_at = 0;  // the n-th acquire fails; 0: none
  int fail_with = kOtherError;
  std::uint64_t limit_bytes = ~std::uint64_t{0};
  int acquires = 0, releases = 0, wrong_releases = 0;
  std::set<int> closed_gates;
  std::vector<Chunk> released_in_order;

 private:
  static constexpr std::size_t kReserved = std::size_t{1} << 32;
  std::mutex mutex_;
  std::uintptr_t base_, next_;
  int calls_ = 0;
  std::uint64_t bytes_out_ = 0;
  std::map<Chunk, std::uint64_t> out_;
};
static_assert(Source<FakeSource>);

}  // namespace cistern::test
