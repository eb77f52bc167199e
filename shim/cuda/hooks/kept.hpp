// A device block that the program gave back and the pool keeps is not valid memory. A copy, memset, prefetch or advice
// that names it gets the driver's answer for an unallocated address, and a line says where the block was freed and
// where it was used. The same holds for addresses of a range or segment without a block. Launches are not looked at: a
// word among their arguments may only look like an address.
#pragma once
#include "shim/cuda/state.hpp"

namespace cistern::cuda {

// The memory that a call names: memory that the program has (`allowed`, for all that is known), a kept block, or
// addresses of a range where no block is: it went with its context, or the call goes beyond a block's end. A call
// begins at the start of a live block nearly always, and that is one look without a lock.
struct Named {
  enum What { allowed, freed, not_there } what = allowed;
  const Block* block = nullptr;  // of freed memory
};

// The contexts with memory in a range that a call names, held until the call returns: a context that ends would unmap
// it at any moment. While one is ending a call that comes waits, only for a time.
class InUse {
 public:
  InUse() = default;
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse() {
    if (first_) leave();
  }
  void add(Context& context);

 private:
  void leave();

  Context* first_ = nullptr;
  Vector<Context*> more_;  // only copies in batches name memory of several
};

inline Named named_by(CudaState& s, CUdeviceptr first, std::uint64_t bytes, InUse& in_use) {
  const Block* block = s.blocks.table.find(first);
  if (!block && !(block = s.blocks.containing(first))) {
    const bool in_range = s.pools.ranges().containing(first) || s.segments.kind_at(first) == BlockKind::device;
    return {in_range ? Named::not_there : Named::allowed};
  }
  if (block->state.load(std::memory_order_acquire) == BlockState::live) [[likely]] {
    if (!block->in_range_or_segment() || block->kind != BlockKind::device) [[likely]]
      return {};
    in_use.add(*block->context);
    if (!block->context_is_there()) return {Named::not_there};
    const std::uint64_t offset = first - block->address.load(std::memory_order_relaxed);
    const bool fits = bytes <= block->bytes && offset <= block->bytes - bytes;
    return {fits ? Named::allowed : Named::not_there};
  }
  const bool kept = block->kind == BlockKind::device && block->context_is_there() &&
                    block->state.load(std::memory_order_acquire) == BlockState::cached;
  return kept ? Named{Named::freed, block} : Named{};
}

// Whether the call is refused with kInvalidValue. For freed memory that is said once for each place that does so. No:
// there is no context, or it is broken, and the driver refuses for that reason whatever the address.
bool refuses_named(CudaState& s, const Named& named, CUdeviceptr address, const char* driver_name);

// The bytes from the first of rows to the last.
constexpr std::uint64_t spanned(std::uint64_t pitch, std::uint64_t width, std::uint64_t height) {
  std::uint64_t bytes = 0;
  if (!width || !height) return 0;
  const bool too_many =
      __builtin_mul_overflow(pitch, height - 1, &bytes) || __builtin_add_overflow(bytes, width, &bytes);
  return too_many ? ~std::uint64_t{0} : bytes;
}

inline bool refuses(CudaState& s, InUse& in_use, const char* driver_name, CUdeviceptr first, std::uint64_t bytes) {
  const Named named = bytes ? named_by(s, first, bytes, in_use) : Named{};
  return named.what != Named::allowed && refuses_named(s, named, first, driver_name);
}
inline bool refuses(CudaState& s, InUse& in_use, const char* driver_name, const CUdeviceptr* firsts,
                    const std::size_t* bytes, std::size_t count) {
  for (std::size_t i = 0; firsts && bytes && i < count; ++i)
    if (refuses(s, in_use, driver_name, firsts[i], bytes[i])) return true;
  return false;
}

}  // namespace cistern::cuda
