// CUDA's device, pinned and managed memory as the library's pools take and give it: by the functions that the hooks
// call too.
#include <algorithm>
#include <optional>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/library/queues.hpp"
#include "shim/cuda/library/segments.hpp"
#include "shim/cuda/library/sharing.hpp"
#include "shim/cuda/library_side.hpp"
#include "shim/library/kind_memory.hpp"

namespace cistern::cuda {
namespace {

using library::BlockRequest;
using library::InOrder;
using library::Taken;

constexpr unsigned kAttachGlobal = 1;
constexpr std::size_t kDeviceAlignment = 256, kPinnedAlignment = 64;

void* pointer_of(const Taken& taken) { return reinterpret_cast<void*>(taken.base); }
CUdeviceptr address_of(const Taken& taken) { return static_cast<CUdeviceptr>(taken.base); }
CUstream stream(void* queue) { return static_cast<CUstream>(queue); }
unsigned flags_of(const BlockRequest& request) { return static_cast<unsigned>(request.flags); }
int device_of(const BlockRequest& request) {
  return request.where & CISTERN_ON_DEVICE ? request.device : CISTERN_CURRENT;
}

// --- Taken in the context that is wanted
cistern_status take_device(const BlockRequest& request, Taken* taken) {
  taken->device = device_of(request);
  CUdeviceptr pointer = 0;
  Context* context = nullptr;
  if (const CUresult answer = find_context(taken->device, &context); answer != kSuccess) return status_of(answer);
  const auto allocate = [&] {
    if (!request.order.of_stream) return allocate_device(*context, &pointer, request.bytes);
    auto* const on = stream(request.order.stream);
    const InContext here(on == per_thread_stream() ? context->handle() : nullptr);
    return allocate_device_on(*context, on, &pointer, request.bytes);
  };
  const CUresult answer = allocate();
  taken->base = static_cast<std::uintptr_t>(pointer);
  return status_of(answer);
}

// `Allocate`: CUresult(std::uintptr_t* memory)
template <class Allocate>
cistern_status take_on(int device, Taken* taken, Allocate allocate) {
  taken->device = device;
  const OnDevice here(device);
  return status_of(here ? allocate(&taken->base) : here.answer());
}

cistern_status take_pinned(const BlockRequest& request, Taken* taken) {
  return take_on(device_of(request), taken, [&](std::uintptr_t* memory) {
    void* pointer = nullptr;
    const CUresult answer = hook::cuMemHostAlloc(&pointer, request.bytes, flags_of(request));
    *memory = reinterpret_cast<std::uintptr_t>(pointer);
    return answer;
  });
}

cistern_status take_managed(const BlockRequest& request, Taken* taken) {
  const unsigned flags = flags_of(request) ? flags_of(request) : kAttachGlobal;
  return take_on(device_of(request), taken, [&](std::uintptr_t* memory) {
    CUdeviceptr pointer = 0;
    const CUresult answer = hook::cuMemAllocManaged(&pointer, request.bytes, flags);
    *memory = static_cast<std::uintptr_t>(pointer);
    return answer;
  });
}

// --- Given
cistern_status give_device(const Taken& taken, void* queue, InOrder order) {
  if (!driver_found()) return CISTERN_NO_DRIVER;
  const CUdeviceptr pointer = address_of(taken);
  auto* const on = stream(order.of_stream ? order.stream : queue);
  std::optional<OnDevice> here;
  if (!is_device_block(pointer) || on == per_thread_stream()) here.emplace(taken.device);
  if (order.of_stream) return status_of(free_device_on(on, pointer));
  return status_of(queue ? free_device_later(pointer, on) : free_device_now(pointer));
}

cistern_status give_pinned(const Taken& taken, void* queue, InOrder) {
  if (!driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice here(taken.device);
  return status_of(queue ? free_pinned_later(pointer_of(taken), stream(queue))
                         : hook::cuMemFreeHost(pointer_of(taken)));
}

cistern_status give_managed(const Taken& taken, void*, InOrder) {
  if (!driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice here(taken.device);
  return status_of(free_device(address_of(taken)));
}

bool is_no_block(int code) { return code == kInvalidValue || code == kNotInitialized; }

// --- Reserved
template <class Reserve>
cistern_status reserve_on(int device, Reserve reserve) {
  const OnDevice here(device);
  return status_of(here ? reserve() : here.answer());
}

cistern_status reserve_device_blocks(const BlockRequest& request, std::size_t count) {
  return reserve_on(device_of(request), [&] { return reserve_device(request.bytes, count); });
}

cistern_status reserve_pinned_blocks(const BlockRequest& request, std::size_t count) {
  return reserve_on(device_of(request), [&] { return reserve_pinned(request.bytes, flags_of(request), count); });
}

// --- Blocks without a record of a pool
CUdeviceptr address_of(const void* block) { return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(block)); }

int device_of_block(const void* block) {
  if (!driver_found() || any_context_is_current()) return CISTERN_CURRENT;
  int ordinal = CISTERN_CURRENT;
  const CUresult answer = hook::cuPointerGetAttribute(&ordinal, kPointerDeviceOrdinal, address_of(block));
  return answer == kSuccess ? ordinal : CISTERN_CURRENT;
}

std::size_t bytes_of(const void* block) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const CUdeviceptr pointer = address_of(block);
  const bool known = driver_found() && hook::cuMemGetAddressRange_v2(&base, &bytes, pointer) == kSuccess;
  return known && base == pointer ? bytes : 0;
}

// The driver does not wait for a copy between two places of a device.
cistern_status copy_contents(void* target, const void* source, std::size_t bytes, int device, void* queue) {
  const cistern_status status = library::copy(target, source, bytes, std::max(device, 0), queue);
  if (status != CISTERN_OK || !bytes) return status;
  const OnDevice there(CurrentOr{std::max(device, 0)});
  return there ? queues.wait(CISTERN_CURRENT, queue ? queue : legacy_stream()) : status_of(there.answer());
}

}  // namespace

extern constexpr library::KindMemory device_memory = {
    .kind = CISTERN_DEVICE,
    .name = "device",
    .alignment = kDeviceAlignment,
    .where = CISTERN_ON_DEVICE,
    .is_device = true,
    .in_order = true,
    .queues = &queues,
    .sharing = &sharing,
    .segments = &segments,
    .take = take_device,
    .give = give_device,
    .is_no_block = is_no_block,
    .reserve = reserve_device_blocks,
    .bytes_of = bytes_of,
    .device_of = device_of_block,
    .copy_contents = copy_contents,
    .device_count = device_count,
};

extern constexpr library::KindMemory pinned_memory = {
    .kind = CISTERN_PINNED,
    .name = "pinned",
    .alignment = kPinnedAlignment,
    .where = CISTERN_ON_DEVICE,
    .queues = &queues,
    .segments = &segments,
    .take = take_pinned,
    .give = give_pinned,
    .is_no_block = is_no_block,
    .reserve = reserve_pinned_blocks,
    .bytes_of = bytes_of,
    .device_of = device_of_block,
};

extern constexpr library::KindMemory managed_memory = {
    .kind = CISTERN_MANAGED,
    .name = "managed",
    .alignment = kDeviceAlignment,
    .where = CISTERN_ON_DEVICE,
    .queues = &queues,
    .take = take_managed,
    .give = give_managed,
    .is_no_block = is_no_block,
    .bytes_of = bytes_of,
    .device_of = device_of_block,
    .copy_contents = copy_contents,
};
static_assert(is_whole(device_memory) && is_whole(pinned_memory) && is_whole(managed_memory));

}  // namespace cistern::cuda
