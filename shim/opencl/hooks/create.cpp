// Buffers made: which of them are recycled.
//
//   create_buffer -> why_not_recycled? -> the real call, accounted as a buffer that will really be released
//                 -> one that the pool kept, of the same context, flags and size, else a new one (pool/acquire.hpp)
//
// Handles are the driver's own, so every query about a buffer is answered by the driver.
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/hooks/account.hpp"
#include "shim/opencl/hooks/copied.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/passed_with_room.hpp"
#include "shim/opencl/missing.hpp"

namespace cistern::opencl {
namespace {

std::optional<Unpooled> why_not_recycled(OpenclState& s, const BufferSource::Request& request,
                                         const void* host_pointer) {
  const Options& chosen = options();
  if (host_pointer || (request.flags & (kMemUseHostPtr | kMemCopyHostPtr))) return Unpooled::host_pointer;
  if (!chosen.opencl_pool) return Unpooled::pool_off;
  if (request.bytes < chosen.opencl_object_min) return Unpooled::too_small;
  if (request.bytes > chosen.opencl_object_max) return Unpooled::too_large;
  if (phase() != Phase::running) return Unpooled::exiting;
  const ContextTraits context = traits_of(s, request.context);
  if (!context.known) return Unpooled::unknown_context;
  if (context.inherited) return Unpooled::inherited;
  if (context.command_buffers) return Unpooled::command_buffer;
  if (lacks_function_for_pool(request.context)) return Unpooled::missing_function;
  return std::nullopt;
}

// None that will do is kept, so a new one is made, beside what is kept for other sizes.
void make_room_beside(OpenclState& s, std::uint64_t bytes, std::uint64_t now_ns) {
  const Proportion::Stays stays = s.proportion.may_stay_beside(
      bytes,
      {.live_bytes = read(s.counters.live_bytes), .allocated_bytes = read(s.counters.allocated_bytes), .ns = now_ns});
  Trim what{.keep_bytes = stays.never_asked_again, .unused_for_ns = 0, .settled_only = true};
  if (s.pool.usage_bytes() > what.keep_bytes)
    s.pool.trim_those(what, now_ns, [&](const PoolKey& key) { return !s.proportion.asked_again(key.bytes); });
  what.keep_bytes = stays.in_all;
  if (s.pool.usage_bytes() > what.keep_bytes) s.pool.trim(what, now_ns);
}

cl_mem create_recyclable(OpenclState& s, const BufferSource::Request& request, MemoryRecord&& record, cl_int* errcode) {
  record.site = site_of_call(s, record.api);
  const std::uint64_t now_ns = coarse_now_ns();
  const PoolKey key = pool_key(record);
  Allocated<decltype(s.pool)::Answer> allocated{{}, true};
  if (const std::optional<cl_mem> kept = s.pool.take(key, now_ns)) {
    allocated.result = {*kept, kSuccess, true};
  } else {
    make_room_beside(s, request.bytes, now_ns);
    allocated = s.pool.allocate(key, request, now_ns);
  }
  if (errcode) *errcode = allocated.result.error;
  if (!allocated.result.ok) {
    add(s.counters.failed);
    record_failed(s, record);
    const Asked asked{record.api, request.context, request.bytes};
    if (is_out_of_memory(allocated.result.error, asked)) report_out_of_memory(s, asked, allocated.result.error);
    return nullptr;
  }
  const cl_mem buffer = allocated.result.chunk;
  if (!allocated.hit) {
    add(s.counters.pool_misses);
    s.proportion.note_new(request.bytes);
  }
  record.recyclable = true;
  record.recycled = allocated.hit;
  adopt(s, buffer, std::move(record), allocated.hit, allocated.hit ? now_ns : coarse_now_ns());
  if (!allocated.hit) raise(s.reserved_peak_bytes, read(s.counters.live_bytes) + s.pool.usage_bytes());
  return buffer;
}

// What the properties mean only the driver knows.
cl_mem create_with_properties(decltype(&hook::clCreateBufferWithProperties) real, const char* api, cl_context context,
                              const cl_bitfield* properties, cl_bitfield flags, std::size_t bytes, void* host_pointer,
                              cl_int* errcode) {
  const InitialCopy copy(state(), api, flags, host_pointer);
  const cl_mem buffer = create_with_room({api, context, bytes}, errcode, [&](cl_int* error) {
    return real(context, properties, flags, bytes, host_pointer, error);
  });
  copy.count(buffer != nullptr, bytes);
  return account_created(buffer, {.context = context, .flags = flags, .bytes = bytes, .api = api},
                         Unpooled::properties);
}

}  // namespace

cl_mem create_buffer(const BufferSource::Request& request, void* host_pointer, cl_int* errcode) {
  OpenclState& s = state();
  MemoryRecord record{
      .context = request.context, .flags = request.flags, .bytes = request.bytes, .api = "clCreateBuffer"};
  const std::optional<Unpooled> why = why_not_recycled(s, request, host_pointer);
  if (!why) [[likely]]
    return create_recyclable(s, request, std::move(record), errcode);
  const InitialCopy copy(s, record.api, request.flags, host_pointer);
  const cl_mem buffer = create_with_room({record.api, request.context, request.bytes}, errcode, [&](cl_int* error) {
    return next().clCreateBuffer(request.context, request.flags, request.bytes, host_pointer, error);
  });
  copy.count(buffer != nullptr, request.bytes);
  return account_created(buffer, std::move(record), *why);
}

cl_int reserve_buffers(const BufferSource::Request& request, std::size_t count) {
  OpenclState& s = state();
  if (why_not_recycled(s, request, nullptr)) return kInvalidOperation;
  for (std::size_t i = 0; i < count; ++i) {
    const auto acquired = s.source.acquire(request);
    if (!acquired.ok) return acquired.error;
    MemoryRecord record{
        .context = request.context, .flags = request.flags, .bytes = request.bytes, .api = "clCreateBuffer"};
    const PoolKey key = pool_key(record);
    record.recyclable = true;
    record.references = 0;
    record.state = MemoryState::pooled;
    record.first_use = first_use_of(s, request.context, request.flags, request.bytes);
    record.part = part_of(s, request.context);
    s.memory.put(acquired.chunk, std::move(record));
    s.proportion.note_back(request.bytes, true);  // asked for
    s.pool.give(key, acquired.chunk, {}, false, coarse_now_ns());
  }
  return kSuccess;
}

namespace hook {

cl_mem clCreateBuffer(cl_context context, cl_bitfield flags, size_t size, void* host_pointer, cl_int* errcode) {
  return create_buffer({context, flags, size}, host_pointer, errcode);
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_bitfield* properties, cl_bitfield flags, size_t size,
                                    void* host_pointer, cl_int* errcode) {
  return create_with_properties(next().clCreateBufferWithProperties, "clCreateBufferWithProperties", context,
                                properties, flags, size, host_pointer, errcode);
}

cl_mem clCreateBufferWithPropertiesINTEL(cl_context context, const cl_bitfield* properties, cl_bitfield flags,
                                         size_t size, void* host_pointer, cl_int* errcode) {
  auto real = extension<decltype(&clCreateBufferWithPropertiesINTEL)>("clCreateBufferWithPropertiesINTEL", context);
  return create_with_properties(real, "clCreateBufferWithPropertiesINTEL", context, properties, flags, size,
                                host_pointer, errcode);
}

}  // namespace hook
}  // namespace cistern::opencl
