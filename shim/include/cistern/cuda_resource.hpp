// Pools as resources of libcu++ (cuda::mr) and of RMM: device, pinned, managed and host memory.
//
//   cistern::device_resource memory;                          // a pool that cuts blocks out of large allocations
//   cuda::mr::resource_ref<cuda::mr::device_accessible> ref(memory);
//   rmm::device_buffer buffer(bytes, stream, memory);
//   cistern::device_resource whole(CISTERN_WHOLE_BLOCKS);     // the process's own pool; or of a cistern::pool
//
// They have what each generation of libcu++ asks for: allocate(bytes, alignment) and allocate_async (to CUDA 13.0),
// allocate_sync and allocate(stream, ...) (from 13.1 on). No header of CUDA is included, and none has to be before.
//
// A resource is a handle: copies are equal and serve each other's blocks. It does not own its pool. CUDA's memory is
// that of the current context, or of the pool's device. What fails throws cistern::bad_alloc, which is a
// std::bad_alloc; without exceptions it is a line and the end of the process. Thread-safety: any thread at any time.
//
// Alignment: to 256 bytes always; more in pools of one's own, and in the process's own of pinned and host memory.
// Segments, which device_resource has unless it is told otherwise, take fewer calls of the driver where sizes vary. A
// block that goes back with a stream may be given immediately to a later request on that stream. So memory that was
// allocated on a stream is usable on that stream, and on others that follow it.
// Whole blocks are usable immediately, on any stream. A block that goes back with a stream is not given again before
// the earlier work of its context has ended, and no thread waits. cuMemGetAddressRange answers with the block.
// Managed memory waits when it goes back, as the driver's own free does. Host memory has no order of streams: nothing
// could wait for them.
#ifndef CISTERN_CUDA_RESOURCE_HPP
#define CISTERN_CUDA_RESOURCE_HPP

#include <cistern/plugins.h>
#include <cistern/pool.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

struct CUstream_st;  // cudaStream_t and CUstream are pointers to it

namespace cistern {
namespace detail {

template <class Stream>
concept has_stream = requires(const Stream& stream) {
  { stream.get() } -> std::convertible_to<CUstream_st*>;
};

// cuda::stream_ref, rmm::cuda_stream_view, cudaStream_t: whatever is a stream, or has one. kNull: the driver's name for
// the null stream, because null means to wait.
template <std::uintptr_t kNull>
class stream_or_null {
 public:
  stream_or_null(CUstream_st* stream) noexcept : stream_(stream) {}
  template <class Stream>
  requires(has_stream<Stream> || std::convertible_to<const Stream&, CUstream_st*>) stream_or_null(const Stream& stream)
  noexcept : stream_(of(stream)) {}

  void* as_queue() const noexcept { return stream_ ? static_cast<void*>(stream_) : reinterpret_cast<void*>(kNull); }

 private:
  template <class Stream>
  static CUstream_st* of(const Stream& stream) noexcept {
    if constexpr (has_stream<Stream>)
      return stream.get();
    else
      return stream;
  }

  CUstream_st* stream_;
};

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
using any_stream = stream_or_null<2>;  // cudaStreamPerThread
#else
using any_stream = stream_or_null<1>;  // cudaStreamLegacy
#endif

// Whether Property is cuda::mr::`name`. Such a type lies in a namespace with libcu++'s version in it, so that it cannot
// be declared here; its name can be read.
template <class Property>
constexpr bool is_property(std::string_view name) {
  // "... [with Property = cuda::mr::__4::device_accessible; ...]", without the spaces where nvcc reads it
  constexpr std::string_view kParameter = "Property";
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(std::min(text.find(kParameter), text.size() - kParameter.size()) + kParameter.size());
  text.remove_prefix(std::min(text.find_first_not_of(" ="), text.size()));
  text = text.substr(0, text.find_first_of(";]"));
  if (!text.starts_with("cuda::") || text.find("::mr::") == text.npos || !text.ends_with(name)) return false;
  text.remove_suffix(name.size());
  return text.ends_with("::");
}

// Made at the first call, and never destroyed: blocks of static objects may outlive anything. Null: there are too many
// pools.
template <cistern_kind kind>
cistern_pool* pool_of_segments() noexcept {
  static cistern_pool* const made = [] {
    result<cistern::pool> pool = cistern::pool::make({.name = "segments", .kind = kind, .memory = CISTERN_SEGMENTS});
    return pool ? pool.value().release() : nullptr;
  }();
  return made;
}

inline void* allocate_on_or_throw(const char* call, cistern_pool* pool, std::size_t bytes, void* stream) {
  void* block = nullptr;
  const cistern_status status = cistern_pool_allocate_on(pool, bytes ? bytes : 1, CISTERN_CURRENT, stream, &block);
  if (status != CISTERN_OK) raise_bad_alloc(failed(call, status));
  return block;
}

}  // namespace detail

template <cistern_kind kind>
class pool_resource {
  static constexpr bool kOnDevice = kind != CISTERN_HOST, kOnHost = kind != CISTERN_DEVICE;
  static constexpr bool kIsDriversOwn = kind == CISTERN_DEVICE || kind == CISTERN_MANAGED;
  static constexpr std::size_t kAlignment = kIsDriversOwn ? 256 : alignof(std::max_align_t);
  using any_stream = detail::any_stream;

 public:
  // Device memory: with CISTERN_SEGMENTS, unless there are too many pools. Other memory: the process's own pool.
  pool_resource() noexcept : pool_resource(chosen_pool()) {}
  // One of `kind`.
  explicit pool_resource(cistern_pool* pool) noexcept : pool_(pool) {}
  explicit pool_resource(const cistern::pool& pool) noexcept
      : pool_(pool.get()), in_order_(kind == CISTERN_DEVICE && pool.memory() == CISTERN_SEGMENTS) {}
  // CISTERN_SEGMENTS: the pool "segments" of this kind, which stays until the process ends.
  // CISTERN_WHOLE_BLOCKS: the process's own pool.
  explicit pool_resource(cistern_pool_memory memory) requires(kind == CISTERN_DEVICE || kind == CISTERN_PINNED)
      : pool_(memory == CISTERN_SEGMENTS ? detail::pool_of_segments<kind>() : default_pool(kind)),
        in_order_(kind == CISTERN_DEVICE && memory == CISTERN_SEGMENTS) {
    if (!pool_) detail::raise_bad_alloc({CISTERN_NO_MEMORY, "pool_resource"});
  }

  cistern_pool* pool() const noexcept { return pool_; }
  bool operator==(const pool_resource& other) const noexcept { return pool_ == other.pool_; }

  // --- Usable at once, and unused by the device when it goes back; as cuMemFree, which waits for the context
  void* allocate(std::size_t bytes, std::size_t alignment = kAlignment) const {
    constexpr char kCall[] = "pool_resource::allocate";
    // Not by chance either, as where a block happens to lie right.
    if (kIsDriversOwn && alignment > kAlignment && pool_ == default_pool(kind))
      detail::raise_bad_alloc({CISTERN_INVALID, kCall});
    return detail::allocate_or_throw(kCall, pool_, bytes, alignment);
  }
  void deallocate(void* block, std::size_t, std::size_t alignment = kAlignment) const noexcept {
    detail::deallocate(pool_, block, alignment);
  }
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) const {
    return allocate(bytes, alignment);
  }
  void deallocate_sync(void* block, std::size_t bytes, std::size_t alignment = kAlignment) const noexcept {
    deallocate(block, bytes, alignment);
  }

  // --- In the order of a stream
  void* allocate(any_stream stream, std::size_t bytes, std::size_t alignment = kAlignment) const requires kOnDevice {
    if (in_order_ && alignment <= kAlignment)
      return detail::allocate_on_or_throw("pool_resource::allocate", pool_, bytes, stream.as_queue());
    return allocate(bytes, alignment);
  }
  void deallocate(any_stream stream, void* block, std::size_t,
                  std::size_t alignment = kAlignment) const noexcept requires kOnDevice {
    detail::deallocate(pool_, block, alignment, stream.as_queue());
  }
  void* allocate_async(std::size_t bytes, std::size_t alignment, any_stream stream) const requires kOnDevice {
    return allocate(stream, bytes, alignment);
  }
  void* allocate_async(std::size_t bytes, any_stream stream) const requires kOnDevice {
    return allocate(stream, bytes, kAlignment);
  }
  void deallocate_async(void* block, std::size_t bytes, std::size_t alignment,
                        any_stream stream) const noexcept requires kOnDevice {
    deallocate(stream, block, bytes, alignment);
  }
  void deallocate_async(void* block, std::size_t bytes, any_stream stream) const noexcept requires kOnDevice {
    deallocate(stream, block, bytes, kAlignment);
  }

  template <class Property>
  requires((kOnDevice && detail::is_property<Property>("device_accessible")) ||
           (kOnHost &&
            detail::is_property<Property>("host_accessible"))) friend constexpr void get_property(const pool_resource&,
                                                                                                  Property) noexcept {}

 private:
  struct Chosen {
    cistern_pool* pool;
    bool in_order;
  };
  explicit pool_resource(const Chosen& chosen) noexcept : pool_(chosen.pool), in_order_(chosen.in_order) {}
  static Chosen chosen_pool() noexcept {
    if constexpr (kind == CISTERN_DEVICE)
      if (cistern_pool* const cut = detail::pool_of_segments<kind>()) return {cut, true};
    return {default_pool(kind), false};
  }

  cistern_pool* pool_;
  bool in_order_ = false;  // requests name their stream
};

using device_resource = pool_resource<CISTERN_DEVICE>;
using pinned_resource = pool_resource<CISTERN_PINNED>;    // accessible from hosts and devices
using managed_resource = pool_resource<CISTERN_MANAGED>;  // the same
using host_resource = pool_resource<CISTERN_HOST>;

}  // namespace cistern
#endif
