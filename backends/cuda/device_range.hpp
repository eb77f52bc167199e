// A context's range of device addresses (pool/ranges), and after its end another's: its blocks are cut from physical
// memory that is mapped there. The program sees each block as memory of its own.
//
//   acquire -> the range pool's block -> the record of a freed block that lay exactly there, or a new one
//   give, give_behind -> the range pool. The record stays until the addresses are given again: so a second free, and a
//                        use after the free, are found
#pragma once
#include "backends/cuda/block_source.hpp"
#include "pool/limits.hpp"
#include "pool/ranges/range_pool.hpp"

namespace cistern::cuda {

// Physical memory of a device (RangeSource), for one of its contexts at a time. It counts as reserved by the device.
class PhysicalMemory {
 public:
  struct Handle {
    CUmemGenericAllocationHandle memory;
    std::uint64_t bytes;
    bool operator==(const Handle&) const = default;
  };
  using Error = CUresult;
  using Fence = BlockSource::Fence;

  PhysicalMemory(const Functions& real, BlockSource& blocks, Context& context, std::uint64_t granularity,
                 bool rdma_capable)
      : real_(real), blocks_(blocks), context_(&context), granularity_(granularity), rdma_capable_(rdma_capable) {}

  Context& context() const { return *context_.load(std::memory_order_relaxed); }
  void serve(Context& context) { context_.store(&context); }

  std::uint64_t granularity() const { return granularity_; }
  Acquired<Handle, Error> create(std::uint64_t bytes);
  void destroy(const Handle& handle);
  Error map(std::uint64_t first, std::uint64_t bytes, const Handle& handle);
  // For the context's own device, and for its peers.
  Error allow_access(std::uint64_t first, std::uint64_t bytes);
  Error unmap(std::uint64_t first, std::uint64_t bytes);
  Settled settled(Fence& fence) { return blocks_.settled(context(), fence); }
  // The call that failed last.
  const char* refused_call() const { return refused_call_.load(std::memory_order_relaxed); }
  static bool failed(Error error) { return error != kSuccess; }
  static bool out_of_memory(Error error) { return error == kOutOfMemory; }
  static Error no_addresses() { return kOutOfMemory; }
  static Error no_room() { return kOutOfMemory; }
  bool has_room(std::uint64_t bytes) { return room_for(*context().device, bytes); }

  // Whether a program's limit leaves room for so much more of the device, and whether the driver has it, too; set by
  // shim/cuda.
  static inline bool (*limit_allows)(const Device&, std::uint64_t) = [](const Device&, std::uint64_t) { return true; };
  static inline bool (*room_for)(Device&, std::uint64_t) = [](Device&, std::uint64_t) { return true; };

 private:
  const Functions& real_;
  BlockSource& blocks_;
  std::atomic<Context*> context_;
  const std::uint64_t granularity_;
  const bool rdma_capable_;
  std::atomic<const char*> refused_call_{""};
};

class DeviceRange {
 public:
  using Pool = ranges::RangePool<PhysicalMemory>;

  struct Addresses {
    std::uintptr_t first;
    std::uint64_t bytes, memory_bytes;  // memory: of the device
  };
  DeviceRange(const Functions& real, Blocks& records, BlockSource& blocks, Context& context, const Addresses& addresses,
              std::uint64_t granularity, bool rdma_capable);

  bool contains(std::uintptr_t address) const { return address - addresses_.first < addresses_.bytes; }
  std::uint64_t address_bytes() const { return addresses_.bytes; }
  Context& context() const { return memory_.context(); }

  // A block in state `cached`. `order`: of the work that will use it (pool/ranges).
  struct Given {
    Block* block;
    CUresult error;
    bool hit;  // no memory was mapped for it
  };
  Given acquire(std::uint64_t bytes, ranges::Order order);

  // Blocks come back; the caller does not touch the record afterwards. Nothing uses the block any more:
  void give(Block* block);
  // The work of the context that is enqueued by now may use it. Work of the same order need not wait for that.
  void give_behind(Block* block, ranges::Order order);
  // All of these may use it.
  void give_behind(Block* block, BlockSource::Fence&& fence);
  // It must never be used again; with a fence, all of these may still use it.
  void retire(Block* block);
  void retire(Block* block, BlockSource::Fence&& fence);
  // Called with each request and free that reaches the pool: memory that was not needed for an interval goes back, and
  // what is retained beyond `bytes_max`.
  void set_limits(const PoolLimits& limits) {
    interval_.set(limits);
    bytes_max_ = limits.bytes_max;
  }
  void keep_limits(std::uint64_t now_ns);
  // For `interval_`.
  void trim(const Trim& what, std::uint64_t now_ns);

  Pool& pool() { return pool_; }
  // A driver that mapped memory once may refuse it later. After several refusals in a row no more is asked for; those
  // for want of memory are none. True: it was the last.
  bool note_refused() { return refusals_.fetch_add(1) + 1 == kRefusalsMax; }
  const char* refused_call() const { return memory_.refused_call(); }
  bool is_closed() const { return refusals_.load(std::memory_order_relaxed) >= kRefusalsMax; }
  // More devices may use the memory (Device::peers), all that is mapped by now too.
  CUresult peers_changed() { return pool_.allow_access_again(); }
  // The context has ended, and its blocks with it: the memory goes back to the driver, and the range may serve another
  // context of the device.
  void end();
  bool serve_next(Context& context);

  void before_fork() {
    order_lock_.lock_for_fork();
    pool_.before_fork();
  }
  void after_fork() {
    pool_.after_fork();
    order_lock_.unlock_after_fork();
  }

  DeviceRange* next = nullptr;  // in the list of all

 private:
  // The last touch of the record by whoever frees the block.
  static std::uintptr_t becomes_former(Block* block) {
    block->is_former.store(true, std::memory_order_relaxed);
    return block->address.load(std::memory_order_relaxed);
  }

  Blocks& records_;
  const Addresses addresses_;
  PhysicalMemory memory_;
  Lock order_lock_;  // fences of one order come to the pool in that order
  Pool pool_;
  IntervalTrim interval_;
  static constexpr int kRefusalsMax = 3;
  std::atomic<int> refusals_{0};
  std::atomic<bool> has_ended_{false};
  std::uint64_t bytes_max_ = ~std::uint64_t{0};
};

}  // namespace cistern::cuda
