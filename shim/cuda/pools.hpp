// The pools of CUDA memory: blocks that the program gave back and that are kept for its next requests. Pools decide
// which blocks are kept and for how long, when a kept block can be given again, and what goes back to the driver. Safe
// to call from any thread.
#pragma once
#include "backends/cuda/block_source.hpp"
#include "pool/tiered_pool.hpp"
#include "shim/cuda/account.hpp"
#include "shim/cuda/contexts.hpp"
#include "shim/cuda/device_ranges.hpp"

namespace cistern::cuda {

using BlockPool = TieredPool<BlockSource>;

class Pools {
 public:
  struct Ways {
    bool deferred;     // a free does not wait for the device (CISTERN_DEVICE_ORDER)
    bool with_ranges;  // device memory comes from ranges (CISTERN_DEVICE_POOL)
  };
  Pools(const Functions& functions, CallGate& gate, Blocks& blocks, Contexts& contexts, Account& account,
        const Ways& ways);

  BlockSource& source() { return source_; }
  const BlockSource& source() const { return source_; }
  BlockPool& device() { return device_; }
  BlockPool& pinned() { return pinned_; }
  BlockPool& of(BlockKind kind) { return kind == BlockKind::device ? device_ : pinned_; }
  DeviceRanges& ranges() { return ranges_; }
  // Asked by every allocation and free, which do not compare the option's text.
  bool keep_device_memory() const { return keep_device_memory_; }
  bool are_deferred() const { return deferred_; }

  // The work that a block waits for besides that of its own context, which has been waited for already. All contexts
  // may use pinned memory; another context uses device memory only after peer access or a copy. `own_too`: the block
  // waits for its own context as well.
  BlockSource::Fence fence_for(const Block* block, bool own_too);
  void give(Block* block, BlockSource::Fence&& fence, std::uint64_t now_ns = coarse_now_ns());
  // The same for a block that lies in a range. A small one that nothing uses may stay with its thread, as it is.
  void give_to_range(Block* block, BlockSource::Fence&& fence, std::uint64_t now_ns);
  // In the order of a stream.
  void give_to_range(Block* block, ranges::Order order, std::uint64_t now_ns);
  // A small block of a range that the thread's cache kept; null: it has none with this key.
  Block* take_of_thread(const PoolKey& key) { return device_.take_of_thread(key).value_or(nullptr); }

  // Bytes that the driver has given for blocks of this kind. Chunks of staged copies are not the program's memory.
  std::uint64_t reserved_bytes(const Sort& sort) const;
  // Whether a block that comes back, and counts as live yet, is kept at all: see Proportion.
  bool keeps(const Block& freed, std::uint64_t now_ns);
  // Called after a free of the program's own, which may wait as the driver's would have. The kept memory of that kind
  // is brought into proportion to what was live lately.
  void keep_in_proportion(const Sort& sort, std::uint64_t now_ns) {
    if (source_.share_of(sort).proportion.may_be_over(reserved_bytes(sort), now_ns)) [[unlikely]]
      give_up_excess(sort, now_ns);
  }

  // Kept blocks that have settled by now can be given again, also while a stream captures, when no thread may ask the
  // driver.
  void settle();
  // Blocks of ranges that threads have in their caches go back: each keeps its piece of the range mapped.
  void give_cached_to_ranges();

  // While a stream captures, the limits of ranges are not kept. Called when a capture or a wait has ended: they are
  // kept now, as far as work has ended.
  void keep_limits_missed() {
    if (limits_missed_.load(std::memory_order_relaxed)) [[unlikely]]
      keep_limits_now();
  }

  // Releases all kept blocks that have settled. Returns the bytes given back.
  std::uint64_t trim();
  // The same while a stream captures: first the blocks that no command uses. The rest is waited for as the program's
  // own free would have been.
  std::uint64_t trim_while_capturing();
  // Waits for other threads that give blocks back at this moment; true: one did.
  bool wait_for_releases() { return device_.wait_for_releases() || pinned_.wait_for_releases(); }

  // A context's blocks leave the pools: visit(key, block, waits).
  template <class Visit>
  void take_out(const Context* context, Visit visit) {
    const auto group = reinterpret_cast<std::uintptr_t>(context);
    device_.take_out(group, visit);
    pinned_.take_out(group, visit);
  }

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  template <class Give>
  void to_range(Block* block, std::uint64_t now_ns, Give give);
  Proportion::Now usage(const Sort& sort, std::uint64_t now_ns);
  void give_up_excess(const Sort& sort, std::uint64_t now_ns);
  void keep_limits_now();

  CallGate& gate_;
  Contexts& contexts_;
  Account& account_;
  BlockSource source_;
  BlockPool device_, pinned_;
  DeviceRanges ranges_;
  const bool keep_device_memory_, deferred_;
  std::atomic<bool> limits_missed_{false};
};

}  // namespace cistern::cuda
