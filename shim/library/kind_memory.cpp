// See kind_memory.hpp.
#include "shim/library/kind_memory.hpp"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "pool/heap/blocks.hpp"
#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/placement.hpp"
#include "shim/host/serving.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/devices.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/next.hpp"
#include "shim/process/headroom.hpp"
#include "stats/counters.hpp"

namespace cistern::library {
namespace {

constexpr unsigned kAttachGlobal = 1;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr opencl::cl_uint kMemorySize = 0x1102;  // CL_MEM_SIZE

bool is_cuda(cistern_kind kind) { return kind != CISTERN_HOST && kind != CISTERN_OPENCL; }

// What the kind's own blocks are aligned to at least; it gives other ones by itself where there is no limit.
std::size_t natural_alignment(cistern_kind kind) {
  constexpr std::size_t kDevice = 256, kPinned = 64;
  return kind == CISTERN_HOST ? SIZE_MAX : kind == CISTERN_PINNED ? kPinned : kDevice;
}

bool is_placed(const Wanted& wanted) { return wanted.where & (CISTERN_ON_NODE | CISTERN_HUGE_PAGES); }

std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

// Pages that are this block's alone, where they are wanted.
cistern_status take_placed(const Wanted& wanted, Taken* taken) {
  const bool huge = wanted.where & CISTERN_HUGE_PAGES;
  const std::size_t page = huge ? kHugePage : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = rounded(wanted.bytes, page);
  void* const memory = allocate(bytes, std::max(page, wanted.alignment));
  if (!memory) return refused(ENOMEM, CISTERN_NO_MEMORY);
  const int node = wanted.where & CISTERN_ON_NODE ? wanted.node : host::kAnyNode;
  if (const int error = host::place_block(memory, bytes, node, huge)) {
    host::free_checked(memory, "cistern_pool_allocate");
    return refused(error, error == EINVAL && node != host::kAnyNode ? CISTERN_INVALID : CISTERN_DRIVER);
  }
  taken->base = reinterpret_cast<std::uintptr_t>(memory);
  taken->placed_bytes = bytes;
  return CISTERN_OK;
}

cistern_status take_host(const Wanted& wanted, Taken* taken) {
  if (is_placed(wanted)) return take_placed(wanted, taken);
  taken->base = reinterpret_cast<std::uintptr_t>(allocate(wanted.bytes, wanted.alignment));
  return taken->base ? CISTERN_OK : refused(ENOMEM, CISTERN_NO_MEMORY);
}

cistern_status take_opencl(const Wanted& wanted, Taken* taken) {
  if (!opencl::next().clCreateBuffer) return CISTERN_NO_DRIVER;
  opencl::cl_int error = opencl::kSuccess;
  auto* const context = reinterpret_cast<opencl::cl_context>(wanted.context);
  opencl::make_context_known(context);
  taken->base =
      reinterpret_cast<std::uintptr_t>(opencl::create_buffer({context, wanted.flags, wanted.bytes}, nullptr, &error));
  return status_of_opencl(error);
}

cistern_status take_cuda(const Wanted& wanted, std::size_t bytes, Taken* taken) {
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  taken->device = wanted.where & CISTERN_ON_DEVICE ? wanted.device : kCurrentContext;
  const OnDevice here(taken->device);
  if (!here)
    return here.answer() == cuda::kInvalidDevice ? refused(here.answer(), CISTERN_INVALID) : status_of(here.answer());
  const auto flags = static_cast<unsigned>(wanted.flags);
  if (wanted.kind == CISTERN_PINNED) {
    void* memory = nullptr;
    const cuda::CUresult answer = cuda::hook::cuMemHostAlloc(&memory, bytes, flags);
    taken->base = reinterpret_cast<std::uintptr_t>(memory);
    return status_of(answer);
  }
  cuda::CUdeviceptr memory = 0;
  const auto allocate = [&] {
    if (wanted.kind == CISTERN_MANAGED)
      return cuda::hook::cuMemAllocManaged(&memory, bytes, flags ? flags : kAttachGlobal);
    if (!wanted.order.of_stream) return cuda::allocate_device(&memory, bytes);
    return cuda::allocate_device_on(static_cast<cuda::CUstream>(wanted.order.stream), &memory, bytes);
  };
  const cuda::CUresult answer = allocate();
  taken->base = static_cast<std::uintptr_t>(memory);
  return status_of(answer);
}

opencl::cl_mem buffer_at(const void* block) { return reinterpret_cast<opencl::cl_mem>(const_cast<void*>(block)); }

cistern_status copy_buffer(const void* target, const void* source, std::size_t bytes, void* queue) {
  auto* const on = static_cast<opencl::cl_command_queue>(queue);
  if (!on) return CISTERN_INVALID;
  const opencl::cl_int error =
      opencl::hook::clEnqueueCopyBuffer(on, buffer_at(source), buffer_at(target), 0, 0, bytes, 0, nullptr, nullptr);
  return status_of_opencl(error == opencl::kSuccess ? opencl::next().clFinish.own(on) : error);
}

}  // namespace

cistern_status check(const Wanted& wanted) {
  if (!wanted.bytes) return CISTERN_INVALID;
  if (wanted.bytes > PTRDIFF_MAX / 2) return CISTERN_NO_MEMORY;
  if (wanted.alignment && (!std::has_single_bit(wanted.alignment) || wanted.alignment > PTRDIFF_MAX / 4))
    return CISTERN_INVALID;
  if (wanted.kind == CISTERN_OPENCL && (wanted.alignment || !wanted.context)) return CISTERN_INVALID;
  unsigned allowed = 0;
  if (wanted.kind == CISTERN_HOST) allowed = CISTERN_ON_NODE | CISTERN_HUGE_PAGES;
  if (is_cuda(wanted.kind)) allowed = CISTERN_ON_DEVICE;
  const bool right_device = !(wanted.where & CISTERN_ON_DEVICE) || wanted.device >= 0;
  const bool right_node = !(wanted.where & CISTERN_ON_NODE) || wanted.node >= 0;
  return (wanted.where & ~allowed) || !right_device || !right_node ? CISTERN_INVALID : CISTERN_OK;
}

cistern_status take(const Wanted& wanted, Taken* taken) {
  const bool shifts = wanted.alignment > natural_alignment(wanted.kind);
  const std::size_t bytes = shifts ? wanted.bytes + wanted.alignment : wanted.bytes;
  born_from_pool = false;
  const cistern_status status = wanted.kind == CISTERN_HOST     ? take_host(wanted, taken)
                                : wanted.kind == CISTERN_OPENCL ? take_opencl(wanted, taken)
                                                                : take_cuda(wanted, bytes, taken);
  taken->was_kept = born_from_pool;
  taken->address = shifts ? rounded(taken->base, wanted.alignment) : taken->base;
  return status;
}

cistern_status give(cistern_kind kind, const Taken& taken, void* queue, InOrder order) {
  auto* const memory = reinterpret_cast<void*>(taken.base);
  if (kind == CISTERN_HOST) {
    if (taken.placed_bytes) host::unplace_block(memory, taken.placed_bytes);
    return host::free_checked(memory, "cistern_pool_deallocate") ? CISTERN_OK : CISTERN_INVALID;
  }
  if (kind == CISTERN_OPENCL) {
    if (!opencl::next().clReleaseMemObject) return CISTERN_NO_DRIVER;
    if (queue) opencl::note_last_queue(buffer_at(memory), static_cast<opencl::cl_command_queue>(queue));
    return status_of_opencl(opencl::release_memory(buffer_at(memory)));
  }
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice here(taken.device);
  auto* const on = static_cast<cuda::CUstream>(queue);
  if (kind == CISTERN_PINNED)
    return status_of(queue ? cuda::free_pinned_later(memory, on) : cuda::hook::cuMemFreeHost(memory));
  const auto pointer = static_cast<cuda::CUdeviceptr>(taken.base);
  if (order.of_stream) return status_of(cuda::free_device_on(static_cast<cuda::CUstream>(order.stream), pointer));
  return status_of(queue && kind == CISTERN_DEVICE ? cuda::free_device_later(pointer, on) : cuda::free_device(pointer));
}

cistern_status reserve(const Wanted& wanted, std::size_t count) {
  if (wanted.kind == CISTERN_MANAGED || (wanted.kind == CISTERN_HOST && !host::pool_serves())) return CISTERN_INVALID;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(wanted.bytes, count, &bytes)) return CISTERN_NO_MEMORY;
  const bool takes_pages = wanted.kind == CISTERN_HOST || wanted.kind == CISTERN_PINNED;
  if (takes_pages && bytes > available_bytes()) return CISTERN_NO_MEMORY;
  if (wanted.kind == CISTERN_HOST)
    return host_pool::reserve_blocks(wanted.bytes, count) ? CISTERN_OK : refused(ENOMEM, CISTERN_NO_MEMORY);
  if (wanted.kind == CISTERN_OPENCL) {
    if (!opencl::next().clCreateBuffer) return CISTERN_NO_DRIVER;
    auto* const context = reinterpret_cast<opencl::cl_context>(wanted.context);
    opencl::make_context_known(context);
    return status_of_opencl(opencl::reserve_buffers({context, wanted.flags, wanted.bytes}, count));
  }
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice here(wanted.where & CISTERN_ON_DEVICE ? wanted.device : kCurrentContext);
  if (!here) return status_of(here.answer());
  return status_of(wanted.kind == CISTERN_DEVICE
                       ? cuda::reserve_device(wanted.bytes, count)
                       : cuda::reserve_pinned(wanted.bytes, static_cast<unsigned>(wanted.flags), count));
}

cistern_status resize_host_block(const char* api, void** block, std::size_t bytes) {
  const int kept_errno = errno;
  if (!host::is_live_block(*block, api)) return CISTERN_INVALID;
  void* const moved = host::hook_realloc(*block, bytes);
  errno = kept_errno;
  if (!moved) return refused(ENOMEM, CISTERN_NO_MEMORY);
  *block = moved;
  return CISTERN_OK;
}

int device_for_free(cistern_kind kind, const void* block) {
  if (!is_cuda(kind) || !cuda::driver_found() || any_context_is_current()) return kCurrentContext;
  int ordinal = kCurrentContext;
  const auto pointer = static_cast<cuda::CUdeviceptr>(reinterpret_cast<std::uintptr_t>(block));
  const cuda::CUresult answer = cuda::hook::cuPointerGetAttribute(&ordinal, cuda::kPointerDeviceOrdinal, pointer);
  return answer == cuda::kSuccess ? ordinal : kCurrentContext;
}

std::size_t bytes_of(cistern_kind kind, const void* block) {
  std::size_t bytes = 0;
  if (kind == CISTERN_HOST) return host::hook_malloc_usable_size(const_cast<void*>(block));
  if (kind == CISTERN_OPENCL) {
    const opencl::cl_int answer =
        opencl::next().clGetMemObjectInfo.own(buffer_at(block), kMemorySize, sizeof bytes, &bytes, nullptr);
    return answer == opencl::kSuccess ? bytes : 0;
  }
  cuda::CUdeviceptr base = 0;
  const auto pointer = static_cast<cuda::CUdeviceptr>(reinterpret_cast<std::uintptr_t>(block));
  const bool known =
      cuda::driver_found() && cuda::hook::cuMemGetAddressRange_v2(&base, &bytes, pointer) == cuda::kSuccess;
  return known && base == pointer ? bytes : 0;
}

cistern_status copy_contents(cistern_kind kind, void* target, const void* source, std::size_t bytes, int device,
                             void* queue) {
  if (kind == CISTERN_OPENCL) return copy_buffer(target, source, bytes, queue);
  if (is_cuda(kind) && kind != CISTERN_PINNED) return copy(target, source, bytes, std::max(device, 0), queue);
  memcpy(target, source, bytes);
  return CISTERN_OK;
}

}  // namespace cistern::library
