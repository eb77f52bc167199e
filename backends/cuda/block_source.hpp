// CUDA memory as a source: device blocks are whole driver allocations; pinned ones too, but for small ones, which are
// cut from slabs of their size. The context of a request is current when acquire is called.
//
// Room: chunks of CUDA memory, and what is known of a context's work.
// May include: pool/base, pool, pool/ranges, pool/staging.
#pragma once
#include "backends/cuda/blocks.hpp"

namespace cistern::cuda {

// Commands of any of these contexts may use the chunk up to these numbers.
struct ClockPoint {
  Context* context;
  std::uint64_t number;
};

// Pinned traits: the flags of cuMemHostAlloc, or a bit for cuMemAllocHost, and the NUMA node where it was asked for.
constexpr std::uint64_t kPlainHostAllocation = std::uint64_t{1} << 32;
constexpr std::uint64_t kDeviceTraits = std::uint64_t{1} << 33;
constexpr int kNodeShift = 40;
// Pinned blocks up to this size, and of the size of a class, are pieces of slabs.
constexpr std::uint64_t kSmallPinnedBytes = std::uint64_t{32} * 1024;

class BlockSource {
 public:
  struct Request {
    Context* context;
    std::uint64_t traits;
    std::uint64_t bytes;
  };
  using Chunk = Block*;
  using Error = CUresult;
  using Fence = Vector<ClockPoint>;

  BlockSource(const Functions& real, CallGate& gate, Blocks& blocks) : real_(real), gate_(gate), blocks_(blocks) {}

  // The block comes in state `cached`.
  Acquired<Block*, CUresult> acquire(const Request& request);
  // While no call may be made, the block waits for release_postponed(). At exit it stays.
  void release(Block* block);
  // The driver's free waits for commands. A piece is not freed by the driver: it is not reused, and goes with its slab.
  void release_unsettled(Block* block) {
    block->unsettled = true;
    release(block);
  }
  Settled settled(Block* block, Fence& fence) { return settled(*block->context, fence); }
  // For memory of the context.
  Settled settled(Context& own, Fence& fence);
  void note_waiting(const Block* block, std::uint64_t change) {
    share_of(block->sort()).waiting_bytes.fetch_add(change, std::memory_order_relaxed);
  }
  static bool out_of_memory(CUresult error) { return error == kOutOfMemory; }

  // While a stream captures, a thread whose own call takes memory may release a block all the same. The thread's
  // capture mode is relaxed meanwhile. The driver waits for commands that may still use the block, as in the program's
  // own free. [measured: 580 on an H100] This disturbs no capture, in whatever mode.
  void release_while_capturing(Block* block, bool unsettled);

  // The same for work of a context whose memory lies in a range: a free of the driver's waits for it.
  void wait_while_capturing(Context& context);

  void release_postponed();
  void release_postponed_while_capturing(bool unsettled_too);
  // Calls visit(block) for each of those that commands may still use, under the lock.
  template <class Visit>
  void for_each_unsettled_postponed(Visit visit) {
    if (!any_postponed_.load(std::memory_order_relaxed)) return;
    Locked hold(lock_);
    for (Block* block : postponed_)
      if (block->unsettled) visit(block);
  }
  // Those of a context that ends.
  void take_out_postponed(const Context* context, Vector<Block*>& out);
  // The block's context is gone: what is known of it is forgotten, without a driver call.
  void forget(Block* block);
  // All slabs of a context that is gone.
  void forget_slabs(const Context* context);

  // A block for memory that a call of the program's own got from the driver, in state `cached`.
  Block* adopt(const Request& request, std::uintptr_t address) {
    return adopt(request, address, request.context->epoch.load(std::memory_order_relaxed));
  }
  // The program's own call freed a whole block, which adopt() or acquire() had counted.
  void freed_by_program(Block* block) {
    count_given_back(block->context, block->kind, block->bytes);
    frees_done.fetch_add(1);
  }

  // A whole allocation for which there is no block: others are cut out of it (shim/cuda/segments.hpp).
  Acquired<std::uintptr_t, CUresult> acquire_segment(const Request& request);
  void release_segment(const Request& segment, std::uintptr_t first);
  // Its context is gone.
  void forget_segment(const Request& segment);

  // Physical memory under a range of the context.
  void count_mapped(const Context& context, std::uint64_t bytes) { count_reserved(&context, BlockKind::device, bytes); }
  void count_unmapped(const Context& context, std::uint64_t bytes) {
    count_given_back(&context, BlockKind::device, bytes);
  }

  // Off where every free waits for its own context: its next wait tells, and an event on the legacy stream would put
  // the program's own streams in an order that they need not have.
  std::atomic<bool> marks_own_context{true};

  std::atomic<std::uint64_t> pinned_reserved_bytes{0}, pinned_reserved_peak_bytes{0};  // the peak without rings
  Share pinned_share;
  Share& share_of(const Sort& sort) {
    return sort.kind == BlockKind::device ? sort.context->device->share : pinned_share;
  }
  Level reserved_on_devices;                 // all of them together, at one time
  std::atomic<std::uint64_t> ring_bytes{0};  // chunks of staged copies, which are no memory of the program's
  DriverCalls pinned_calls;
  std::atomic<std::uint64_t> failed_frees{0};
  // Frees that have returned: only after one can a call that was out of memory have more.
  std::atomic<std::uint64_t> frees_done{0};

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void after_fork_in_child();

 private:
  DriverCalls& calls_of(const Request& request) {
    return request.traits == kDeviceTraits ? request.context->device->calls : pinned_calls;
  }
  std::atomic<std::uint64_t>& reserved_by(const Context* context, BlockKind kind) {
    return kind == BlockKind::device ? context->device->reserved_bytes : pinned_reserved_bytes;
  }
  void count_reserved(const Context* context, BlockKind kind, std::uint64_t bytes);
  void count_given_back(const Context* context, BlockKind kind, std::uint64_t bytes) {
    share_of({kind, context, 0}).proportion.note_gone(bytes);
    reserved_by(context, kind).fetch_sub(bytes, std::memory_order_relaxed);
    if (kind == BlockKind::device) reserved_on_devices.fall(bytes);
  }
  CUresult driver_allocate(const Request& request, std::uintptr_t* address);
  CUresult driver_free(Context* context, BlockKind kind, std::uintptr_t address);
  // `life`: the context's epoch before the driver was asked. The context may have ended since, and its memory with it:
  // in the next life the block would be given again while others have the address.
  Block* adopt(const Request& request, std::uintptr_t address, std::uint32_t life);
  void really_release(Block* block);
  Acquired<Block*, CUresult> acquire_piece(const Request& request);
  Block* adopt_piece(const Request& request, const Slabs::Piece& piece);
  void forget_slab(const Slab& slab);
  void release_piece(Block* block);

  const Functions& real_;
  CallGate& gate_;
  Blocks& blocks_;
  Lock lock_;
  Slabs slabs_;
  Vector<Block*> postponed_;
  std::atomic<bool> any_postponed_{false};
};
static_assert(Source<BlockSource>);

}  // namespace cistern::cuda
