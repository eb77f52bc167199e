// Pools where RMM takes memory from: compiled against RMM's own headers, with any release of which the handles exist.
// It is never linked: that would take RMM's library and a GPU.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <cistern/cuda_resource.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/resource_ref.hpp>
#if __has_include(<rmm/mr/device/per_device_resource.hpp>)
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#else
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#endif

#include <type_traits>

namespace {

using cistern::device_resource, cistern::host_resource, cistern::managed_resource, cistern::pinned_resource;

template <class Ref, class... Resources>
constexpr bool refers_to = (std::is_constructible_v<Ref, Resources&> && ...);
static_assert(refers_to<rmm::device_async_resource_ref, device_resource, pinned_resource, managed_resource>);
static_assert(refers_to<rmm::device_resource_ref, device_resource, pinned_resource, managed_resource>);
static_assert(refers_to<rmm::host_device_async_resource_ref, pinned_resource, managed_resource>);
static_assert(refers_to<rmm::host_resource_ref, host_resource, pinned_resource, managed_resource>);
static_assert(!refers_to<rmm::device_resource_ref, host_resource>);
static_assert(!refers_to<rmm::host_resource_ref, device_resource>);
static_assert(!refers_to<rmm::host_async_resource_ref, host_resource>, "it has no order of streams");

}  // namespace

// --- What programs write; nobody calls it
namespace rmm_compiles {

device_resource memory;

void* with_streams(cuda::stream_ref stream) {
  void* const block = memory.allocate(stream, 100, 256);
  memory.deallocate(stream, block, 100, 256);
  return memory.allocate_async(100, stream.get());
}

auto in_a_buffer(cuda::stream_ref stream) { return rmm::device_buffer(1000, stream, memory); }

auto in_a_vector(cuda::stream_ref stream) { return rmm::device_uvector<int>(1000, stream, memory); }

// As everybody's resource, and under RMM's own adaptors.
#if __has_include(<rmm/mr/device/per_device_resource.hpp>)
void* with_views_of_streams(rmm::cuda_stream_view stream) { return memory.allocate_async(100, stream); }

void of_the_device() {
  rmm::mr::set_current_device_resource_ref(memory);
  rmm::mr::statistics_resource_adaptor<device_resource> counted(&memory);
  rmm::mr::pool_memory_resource<device_resource> pool(&memory, 1 << 20);
}
#else
void of_the_device() {
  rmm::mr::set_current_device_resource(memory);
  rmm::mr::statistics_resource_adaptor counted(memory);
  rmm::mr::pool_memory_resource pool(memory, 1 << 20);
}
#endif

}  // namespace rmm_compiles
