// Whole allocations that the library's pools cut into blocks (shim/library/segments.hpp). The driver knows a segment,
// the program its blocks. The library knows which bytes are free; this table serves queries, figures and the end of a
// context. Safe to call from any thread.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "backends/cuda/block_source.hpp"

namespace cistern::cuda {

struct Segment {
  BlockSource::Request of;  // its bytes, context and traits
  std::uint32_t epoch;      // of the context
  std::uint64_t live_blocks = 0, live_bytes = 0;
  std::uint64_t work = 0;  // all work of the context up to there may still use what was freed

  BlockKind kind() const { return of.traits == kDeviceTraits ? BlockKind::device : BlockKind::pinned; }
};

class Segments {
 public:
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Returns the one that lay there before: its context has gone, and the thread that ended it has not come here yet.
  std::optional<Segment> put(std::uintptr_t first, const Segment& segment) {
    const Locked hold(lock_);
    any_.store(true, std::memory_order_relaxed);
    const auto [at, is_new] = all_.try_emplace(first, segment);
    if (is_new) return {};
    return std::exchange(at->second, segment);
  }
  // Nothing: it has gone with its context.
  std::optional<Segment> take(std::uintptr_t first) {
    const Locked hold(lock_);
    const auto found = all_.find(first);
    if (found == all_.end()) return {};
    const Segment segment = found->second;
    all_.erase(found);
    return segment;
  }
  // A block in one was born or has died.
  void count(const Block& block, bool is_born, std::uint64_t work = 0) {
    const Locked hold(lock_);
    Segment* const of = find(block.address.load(std::memory_order_relaxed));
    if (!of) return;
    const std::uint64_t bytes = block.bytes;
    of->live_blocks += is_born ? 1 : ~std::uint64_t{0};
    of->live_bytes += is_born ? bytes : 0 - bytes;
    of->work = std::max(of->work, work);
  }
  // The kind of the segment that contains the address; nothing: none does.
  std::optional<BlockKind> kind_at(std::uintptr_t address) {
    if (!any()) [[likely]]
      return {};
    const Locked hold(lock_);
    const Segment* const of = find(address);
    return of ? std::optional(of->kind()) : std::nullopt;
  }
  // Those of lives of the context that are over are forgotten: visit(segment).
  template <class Visit>
  void end_those_of(const Context& context, Visit visit) {
    const Locked hold(lock_);
    for (auto at = all_.begin(); at != all_.end();) {
      if (at->second.of.context != &context || at->second.epoch == context.epoch.load()) {
        ++at;
        continue;
      }
      visit(at->second);
      at = all_.erase(at);
    }
  }

  // Over the device's segments. `reclaimable`: in those without blocks that no work uses, as far as is known.
  struct Usage {
    std::uint64_t bytes = 0, live_bytes = 0, reclaimable_bytes = 0;
  };
  Usage usage(const Device& device) {
    Usage sum;
    for_each([&](std::uintptr_t, const Segment& segment) {
      if (segment.kind() != BlockKind::device || segment.of.context->device != &device) return;
      sum.bytes += segment.of.bytes;
      sum.live_bytes += segment.live_bytes;
      if (!segment.live_blocks && segment.of.context->clock.known(segment.work))
        sum.reclaimable_bytes += segment.of.bytes;
    });
    return sum;
  }
  // Contexts whose work alone keeps segments from going back.
  Vector<Context*> busy_contexts() {
    Vector<Context*> busy;
    for_each([&](std::uintptr_t, const Segment& segment) {
      Context* const context = segment.of.context;
      if (segment.live_blocks || context->clock.known(segment.work)) return;
      if (std::find(busy.begin(), busy.end(), context) == busy.end()) busy.push_back(context);
    });
    return busy;
  }
  // visit(first, segment), by address and under the lock.
  template <class Visit>
  void for_each(Visit visit) {
    if (!any()) return;
    const Locked hold(lock_);
    for (const auto& [first, segment] : all_) visit(first, segment);
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  // The parent's are no memory of the child's.
  void after_fork_in_child() {
    all_.clear();
    any_ = false;
  }

 private:
  Segment* find(std::uintptr_t address) {
    const auto next = all_.upper_bound(address);
    if (next == all_.begin()) return nullptr;
    auto& [first, segment] = *std::prev(next);
    return address - first < segment.of.bytes ? &segment : nullptr;
  }

  std::atomic<bool> any_{false};
  Lock lock_;
  std::map<std::uintptr_t, Segment, std::less<>, InternalAllocator<std::pair<const std::uintptr_t, Segment>>> all_;
};

}  // namespace cistern::cuda
