// Answers in which a program could see the pool: corrected to what they would be without it. Questions about a block
// that the program gave back, or about what lies behind its end, get the answer for memory that was never allocated.
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/substitute.hpp"
#include "shim/cuda/state.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {
namespace {

CUdeviceptr nowhere() { return reinterpret_cast<CUdeviceptr>(unallocated_address()); }

enum class Whose { not_ours, program, pool };
struct Found {
  Whose whose;
  Block* block;
};

Found find_block(CUdeviceptr pointer) {
  CudaState* s = state_if_used();
  if (!s) return {Whose::not_ours, nullptr};
  bool in_slab = false;
  Block* block = s->blocks.containing(pointer, &in_slab);
  // A piece of a slab that was never handed out, or addresses of a range or segment without a block.
  if (!block) {
    const bool is_pools = in_slab || s->pools.ranges().containing(pointer) || s->segments.kind_at(pointer);
    return {is_pools ? Whose::pool : Whose::not_ours, nullptr};
  }
  if (!block->context_is_there()) return {Whose::not_ours, nullptr};
  const std::uintptr_t address = block->address.load(std::memory_order_relaxed);
  const bool live = block->state.load(std::memory_order_acquire) == BlockState::live;
  return {live && pointer - address < block->requested ? Whose::program : Whose::pool, block};
}

// Buffer ids are unique over the life of the process, so each life of a block has its own. The driver counts from 1.
std::uint64_t own_buffer_id(Block* block) {
  static constinit std::atomic<std::uint64_t> made_so_far{0};
  std::uint64_t known = block->buffer_id.load();
  if (known) return known;
  const std::uint64_t made = (std::uint64_t{1} << 62) | (made_so_far.fetch_add(1, std::memory_order_relaxed) + 1);
  return block->buffer_id.compare_exchange_strong(known, made) ? made : known;
}

// For mapped memory the driver does not answer these, or answers for the pieces that were mapped.
bool is_own_answer(const Block& block, int attribute) {
  if (!block.range) return false;
  switch (attribute) {
    case kPointerContext:
    case kPointerSyncMemops:
    case kPointerRangeStart:
    case kPointerRangeSize:
    case kPointerBufferId:
    case kPointerMappingSize:
    case kPointerMappingStart:
    case kPointerMemoryBlockId:
      return true;
    default:
      return false;
  }
}

// The driver's answer to a question about the memory that it always knows: a host function may ask none, and after a
// fault it is the fault.
CUresult answer_to_any(CUdeviceptr pointer) {
  constexpr int kPointerMemoryType = 2;
  unsigned type = 0;
  return note(state(), driver().cuPointerGetAttribute(&type, kPointerMemoryType, pointer));
}

void correct_attribute(Block* block, int attribute, void* value) {
  if (!value) return;
  const bool piece = block->is_part();
  switch (attribute) {
    case kPointerContext:
      if (block->range) *static_cast<CUcontext*>(value) = block->context->handle();
      return;
    case kPointerSyncMemops:
      if (block->in_range_or_segment()) *static_cast<unsigned*>(value) = block->syncs_memops.load();
      return;
    case kPointerMemoryBlockId:
      if (block->range) *static_cast<unsigned long long*>(value) = own_buffer_id(block);
      return;
    case kPointerRangeStart:
      if (block->in_segment) return;
      *static_cast<CUdeviceptr*>(value) = block->address.load(std::memory_order_relaxed);
      return;
    case kPointerRangeSize:
      if (block->in_segment) return;
      *static_cast<std::size_t*>(value) = block->requested;
      return;
    // Small allocations of the driver's own lie together in mappings that are larger, as pieces do: it says which.
    case kPointerMappingSize:
      if (block->range || (!piece && *static_cast<std::size_t*>(value) == block->bytes))
        *static_cast<std::size_t*>(value) = as_driver_rounds(block->requested);
      return;
    case kPointerMappingStart:
      if (block->range) *static_cast<CUdeviceptr*>(value) = block->address.load(std::memory_order_relaxed);
      return;
    case kPointerBufferId:
      if (piece || block->recycled) *static_cast<unsigned long long*>(value) = own_buffer_id(block);
      return;
    default:
      return;
  }
}

// After a call that leaves a mark with the driver's allocation: it must not pass to the next owner. If the driver
// refused it for memory of a range, which it would not have refused for a whole allocation, the next ones are whole.
CUresult marks(CUdeviceptr pointer, const char* driver_name, CUresult answer) {
  const Found found = find_block(pointer);
  if (found.whose != Whose::program) return answer;
  if (answer == kSuccess)
    found.block->marked.store(true);
  else if (found.block->range && !is_sticky(answer))
    state().pools.ranges().note_export_refused(*found.block, api_name(driver_name));
  return answer;
}

// Empty segments count as free when no work uses them any more.
void settle_segments(CudaState& s) {
  if (!s.segments.any() || !s.gate.open()) return;
  for (Context* const context : s.segments.busy_contexts()) {
    BlockSource::Fence all{{context, context->clock.last()}};
    s.pools.source().settled(*context, all);
  }
}

// Small pinned blocks: the driver knows the slab.
std::uint64_t offset_in_slab(const Found& found, CUdeviceptr pointer) {
  return found.whose == Whose::program && found.block->slab ? pointer - found.block->slab->first : 0;
}

}  // namespace

namespace hook {

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const CUresult answer = driver().cuDeviceTotalMem_v2(bytes, device);
  if (answer != kSuccess || !options().device_limit) return answer;
  *bytes = std::min<std::uint64_t>(*bytes, options().device_limit.of(*bytes));
  return answer;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  const Found found = find_block(pointer);
  if (found.whose == Whose::pool) return driver().cuMemGetAddressRange_v2(base, bytes, nowhere());
  CUresult answer = driver().cuMemGetAddressRange_v2(base, bytes, pointer);
  // The driver knows the pieces of a range, if at all [facts: NVIDIA/nccl #2332].
  const bool in_range = found.whose == Whose::program && found.block->range;
  if (in_range && answer == kNotFound) answer = kSuccess;
  // A block in a segment: the handle for another process is the segment's, and where it begins tells the block's
  // offset.
  if (answer != kSuccess || found.whose == Whose::not_ours || found.block->in_segment) return answer;
  if (base) *base = found.block->address.load(std::memory_order_relaxed);
  if (bytes) *bytes = found.block->requested;
  return answer;
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
  const Found found = find_block(pointer);
  if (found.whose == Whose::pool) return driver().cuPointerGetAttribute(value, attribute, nowhere());
  const bool is_own = value && found.whose == Whose::program && is_own_answer(*found.block, attribute);
  const CUresult answer = is_own ? answer_to_any(pointer) : driver().cuPointerGetAttribute(value, attribute, pointer);
  if (answer == kSuccess && found.whose == Whose::program) correct_attribute(found.block, attribute, value);
  return answer;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr pointer) {
  const Found found = find_block(pointer);
  if (found.whose == Whose::pool) {
    const CUresult answer = driver().cuPointerGetAttributes(count, attributes, values, nowhere());
    // The host pointer of memory that the driver does not know is the address that was asked for.
    for (unsigned i = 0; answer == kSuccess && i < count; ++i)
      if (auto* const host = static_cast<CUdeviceptr*>(values[i]); attributes[i] == kPointerHostPointer && *host)
        *host = pointer;
    return answer;
  }
  const CUresult answer = driver().cuPointerGetAttributes(count, attributes, values, pointer);
  if (answer == kSuccess && found.whose == Whose::program)
    for (unsigned i = 0; i < count; ++i) correct_attribute(found.block, attributes[i], values[i]);
  return answer;
}

CUresult cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr pointer) {
  const Found found = find_block(pointer);
  if (found.whose == Whose::pool) return driver().cuPointerSetAttribute(value, attribute, nowhere());
  CUresult answer = driver().cuPointerSetAttribute(value, attribute, pointer);
  // Cistern itself answers for this attribute of a block in a range, and the next block begins without it.
  const bool is_own = found.whose == Whose::program && found.block->range && attribute == kPointerSyncMemops;
  if (!is_own || answer != kSuccess) answer = marks(pointer, "cuPointerSetAttribute", answer);
  if (answer == kSuccess && attribute == kPointerSyncMemops && found.whose == Whose::program)
    found.block->syncs_memops.store(*static_cast<const unsigned*>(value) != 0);
  return answer;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  if (find_block(pointer).whose == Whose::pool) return driver().cuIpcGetMemHandle(handle, nowhere());
  return marks(pointer, "cuIpcGetMemHandle", driver().cuIpcGetMemHandle(handle, pointer));
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t bytes, int handle_type,
                                       unsigned long long flags) {
  const Found found = find_block(pointer);
  if (found.whose == Whose::pool)
    return driver().cuMemGetHandleForAddressRange(handle, nowhere(), bytes, handle_type, flags);
  return marks(pointer, "cuMemGetHandleForAddressRange",
               driver().cuMemGetHandleForAddressRange(handle, pointer, bytes, handle_type, flags));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* host, unsigned flags) {
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  const Found found = find_block(address);
  if (found.whose == Whose::pool) return driver().cuMemHostGetDevicePointer_v2(pointer, unallocated_address(), flags);
  const std::uint64_t offset = offset_in_slab(found, address);
  const CUresult answer =
      driver().cuMemHostGetDevicePointer_v2(pointer, reinterpret_cast<void*>(address - offset), flags);
  if (answer == kSuccess && pointer) *pointer += offset;
  return answer;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const Found found = find_block(address);
  if (found.whose == Whose::pool) return driver().cuMemHostGetFlags(flags, unallocated_address());
  return driver().cuMemHostGetFlags(flags, reinterpret_cast<void*>(address - offset_in_slab(found, address)));
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  CudaState& s = state();
  s.pools.settle();
  s.pools.give_cached_to_ranges();
  settle_segments(s);
  const CUresult answer = driver().cuMemGetInfo_v2(free_bytes, total_bytes);
  if (answer != kSuccess) return note(s, answer);
  Context* context = s.contexts.current();
  if (!context) return answer;
  Device& device = *context->device;
  if (free_bytes) *free_bytes += kept_bytes(s, device);
  // The driver's figure is a moment older than ours: a chunk taken and kept in between is counted in both.
  if (free_bytes && total_bytes && *free_bytes > *total_bytes) *free_bytes = *total_bytes;
  if (const std::uint64_t limit = limit_of(device)) {
    const std::uint64_t used = used_bytes(s, device) + device.tracked_bytes.load();
    const std::uint64_t left = limit > used ? limit - used : 0;
    if (free_bytes && *free_bytes > left) *free_bytes = left;
    if (total_bytes && *total_bytes > limit) *total_bytes = limit;
  }
  return answer;
}

// --- Look-ups, hooked through themselves

CUresult cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  const CUresult answer = driver().cuGetProcAddress(symbol, function, version, flags);
  if (answer == kSuccess)
    substitute(symbol, function, version, flags, [](const char* name, void** found, int of, std::uint64_t with) {
      return driver().cuGetProcAddress(name, found, of, with);
    });
  return answer;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags, int* status) {
  const CUresult answer = driver().cuGetProcAddress_v2(symbol, function, version, flags, status);
  if (answer == kSuccess)
    substitute(symbol, function, version, flags, [](const char* name, void** found, int of, std::uint64_t with) {
      int unused = 0;
      return driver().cuGetProcAddress_v2(name, found, of, with, &unused);
    });
  return answer;
}

}  // namespace hook
}  // namespace cistern::cuda
