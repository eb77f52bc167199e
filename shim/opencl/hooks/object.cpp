// OpenCL contexts, queues, kernels and the rest: references, so that what is alive at exit can be counted by type;
// the end of a context, which takes its pooled buffers along; and functions found by name.
#include <string.h>

#include <algorithm>

#include "shim/opencl/buffers.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/layer.hpp"
#include "shim/opencl/state.hpp"

namespace cistern::opencl {
namespace {

// A callback may hold the driver's threads up until the program goes on.
cl_context note_context(cl_context context, bool calls_back) {
  if (!context) return context;
  OpenclState& s = state();
  const std::uint64_t number = s.contexts_created.fetch_add(1, std::memory_order_relaxed) + 1;
  DeviceGroup* const group = s.devices.of(context);
  if (group) add(group->contexts_created);
  s.contexts.put(context, {.all_queues_seen = true,
                           .calls_back = calls_back,
                           .in_host_memory = !group || group->uses_host_memory(),
                           .number = number,
                           .group = group,
                           .clocks = {}});
  s.context_traits.changed();
  return context;
}

// In steps that double, so that a queue costs the same however many there are. `seen`: each clock lives until there is
// no lock, for this may be the last one that has it.
void forget_closed(ContextRecord& context, Vector<std::shared_ptr<QueueClock>>& seen) {
  std::erase_if(context.clocks, [&](const auto& known) {
    const std::shared_ptr<QueueClock>& clock = seen.emplace_back(known.lock());
    return !clock || clock->closed();
  });
  context.clocks_max = std::max<std::size_t>(16, 2 * context.clocks.size());
}

std::shared_ptr<QueueClock> new_clock(OpenclState& s, cl_command_queue queue, cl_context context, bool in_order) {
  auto clock = std::allocate_shared<QueueClock>(InternalAllocator<QueueClock>(), s.functions, s.calls, queue, in_order);
  Vector<std::shared_ptr<QueueClock>> seen;
  s.contexts.with(context, [&](ContextRecord* record) {
    if (!record) return;
    if (record->clocks.size() >= record->clocks_max) forget_closed(*record, seen);
    record->clocks.push_back(clock);
  });
  return clock;
}

cl_command_queue note_queue(cl_command_queue queue, cl_context context, cl_device_id device, cl_bitfield properties) {
  if (!queue) return queue;
  OpenclState& s = state();
  add(s.queues_created);
  auto clock = new_clock(s, queue, context, !(properties & kQueueOutOfOrder));
  s.queues.put(queue, {.profiled = (properties & kQueueProfiling) != 0,
                       .device = device,
                       .context = context,
                       .clock = std::move(clock)});
  const bool first = s.contexts.with(context, [](ContextRecord* record) {
    if (!record) return false;
    if (++record->queues > 1) record->several_queues = true;
    return !record->several_queues;
  });
  if (!first) end_order(s, context);
  return queue;
}

cl_bitfield queue_bits_in(const cl_bitfield* properties) {
  for (; properties && properties[0]; properties += 2)
    if (properties[0] == kQueueProperties) return properties[1];
  return 0;
}

cl_kernel note_kernel(cl_kernel kernel) {
  if (!kernel) return kernel;
  add(state().kernels_created);
  state().kernels.put(kernel, {});
  return kernel;
}

template <class Handle>
Handle note_created(CountedType type, Handle handle) {
  if (!handle) return handle;
  add(state().counted_created[static_cast<int>(type)]);
  state().counted.put(handle, {.type = type, .command = {}});
  return handle;
}

}  // namespace

void make_context_known(cl_context context) {
  OpenclState& s = state();
  const bool known = s.contexts.with(context, [](ContextRecord* record) { return record != nullptr; });
  if (!context || known) return;
  DeviceGroup* const group = s.devices.of(context);
  s.contexts.put(
      context, {.references = 0, .in_host_memory = !group || group->uses_host_memory(), .group = group, .clocks = {}});
  s.context_traits.changed();
}

void make_context_unknown(cl_context context) {
  OpenclState& s = state();
  ContextRecord forgotten;
  s.contexts.take_if(context, forgotten, [](const ContextRecord& record) { return record.references == 0; });
  s.context_traits.changed();
}

void note_last_queue(cl_mem buffer, cl_command_queue queue) {
  OpenclState& s = state();
  cl_context context = s.memory.with(buffer, [](MemoryRecord* record) { return record ? record->context : nullptr; });
  if (!context) return;  // no buffer of ours: the release says so
  std::shared_ptr<QueueClock> clock = clock_of(s, queue);
  // An unknown queue may be gone tomorrow: its clock lives for this one marker.
  if (!clock) {
    end_order_everywhere(s, Waited::unknown_calls);
    clock = new_clock(s, queue, context, false);
  }
  const std::uint64_t number = clock->note_command();
  if (clock->settled(number) == Settled::yes) return;
  s.memory.with(buffer, [&](MemoryRecord* record) {
    if (record) record->uses.push_back({clock, number});
  });
}

namespace {

// The table in which objects of a row's type are.
auto& table_of_context() { return state().contexts; }
auto& table_of_queue() { return state().queues; }
auto& table_of_kernel() { return state().kernels; }
auto& table_of_program() { return state().counted; }
auto& table_of_event() { return state().counted; }
auto& table_of_sampler() { return state().counted; }

// A reference is added before the real call (and taken back if that fails), and taken before the real release: so a
// handle that another thread gets at once is a new record.
template <class Table, class Real>
cl_int retain(Table& table, const void* handle, Real real) {
  table.with(handle, [](auto* record) {
    if (record) ++record->references;
  });
  const cl_int error = real();
  if (error != kSuccess)
    table.with(handle, [](auto* record) {
      if (record) --record->references;
    });
  return error;
}

// True when it was the last one; the record is moved out then.
template <class Record>
bool drop_reference(HandleTable<Record>& table, const void* handle, Record& last) {
  return table.take_if(handle, last, [](Record& record) { return --record.references == 0; });
}

template <class Record>
void note_end(const void*, const Record&) {}

// Of a copy whose event the program gives up: what it took, if it has ended.
void note_end(const void* handle, const Counted& last) {
  if (!last.copy || last.inherited) return;
  const auto event = static_cast<cl_event>(const_cast<void*>(handle));
  std::uint64_t start = 0, end = 0;
  if (next().clGetEventProfilingInfo.own(event, kProfilingStart, sizeof start, &start, nullptr) != kSuccess ||
      next().clGetEventProfilingInfo.own(event, kProfilingEnd, sizeof end, &end, nullptr) != kSuccess || end <= start)
    return;
  state().transfers.add_time(last.copy->key, 1, last.copy->bytes, end - start);
}

template <class Record, class Real>
cl_int release(HandleTable<Record>& table, const void* handle, Real real) {
  Record last;
  if (drop_reference(table, handle, last)) note_end(handle, last);
  return real();
}

}  // namespace

namespace hook {

#define OPENCL_CREATE(slot, type, handle, name, parameters, arguments) \
  handle name parameters { return note_created(CountedType::type, next().name arguments); }
#define OPENCL_RETAIN(slot, type, handle, name)                                    \
  cl_int name(handle object) {                                                     \
    return retain(table_of_##type(), object, [&] { return next().name(object); }); \
  }
#define OPENCL_RELEASE(slot, type, handle, name)                                    \
  cl_int name(handle object) {                                                      \
    return release(table_of_##type(), object, [&] { return next().name(object); }); \
  }
#include "shim/symbols/opencl.def"

cl_context clCreateContext(const cl_context_properties* properties, cl_uint device_count, const cl_device_id* devices,
                           cl_context_notify notify, void* user_data, cl_int* errcode) {
  return note_context(next().clCreateContext(properties, device_count, devices, notify, user_data, errcode), notify);
}

cl_context clCreateContextFromType(const cl_context_properties* properties, cl_bitfield device_type,
                                   cl_context_notify notify, void* user_data, cl_int* errcode) {
  return note_context(next().clCreateContextFromType(properties, device_type, notify, user_data, errcode), notify);
}

// The program's last reference: what the pool holds would keep the context alive. From here on nothing of it is kept.
cl_int clReleaseContext(cl_context context) {
  OpenclState& s = state();
  const Vector<std::shared_ptr<QueueClock>> clocks = clocks_of(context);
  ContextRecord last;
  if (drop_reference(s.contexts, context, last)) {
    s.context_traits.changed();
    drain_context(context, clocks);
    give_back_chunks(s, context, last.chunks);
  }
  return next().clReleaseContext(context);
}

// The driver counts what the pool holds as references to the context; markers, and (in PoCL) a buffer's last event, are
// references to a queue. The program must not see those.
cl_int clGetContextInfo(cl_context context, cl_uint name, size_t value_size, void* value, size_t* value_size_ret) {
  if (name == kContextReferenceCount) drain_context(context);
  return next().clGetContextInfo(context, name, value_size, value, value_size_ret);
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_bitfield properties,
                                      cl_int* errcode) {
  return note_queue(next().clCreateCommandQueue(context, device, properties, errcode), context, device, properties);
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_bitfield* properties, cl_int* errcode) {
  return note_queue(next().clCreateCommandQueueWithProperties(context, device, properties, errcode), context, device,
                    queue_bits_in(properties));
}

cl_command_queue clCreateCommandQueueWithPropertiesKHR(cl_context context, cl_device_id device,
                                                       const cl_bitfield* properties, cl_int* errcode) {
  auto real =
      extension<decltype(&clCreateCommandQueueWithPropertiesKHR)>("clCreateCommandQueueWithPropertiesKHR", context);
  return note_queue(real(context, device, properties, errcode), context, device, queue_bits_in(properties));
}

cl_int clSetCommandQueueProperty(cl_command_queue queue, cl_bitfield properties, cl_uint enable,
                                 cl_bitfield* old_properties) {
  const cl_context context = enable && (properties & kQueueOutOfOrder) ? context_of(state(), queue) : nullptr;
  if (context) end_order(state(), context);
  const cl_int error = next().clSetCommandQueueProperty(queue, properties, enable, old_properties);
  if (error == kSuccess && (properties & kQueueOutOfOrder))
    state().queues.with(queue, [&](Queue* record) {
      if (record && enable) record->clock->set_in_order(false);
    });
  return error;
}

// Nothing of ours holds the queue from here on: it goes when its commands have ended. Which of them have not we don't
// get to know any more; buffers that they use are not given again.
cl_int clReleaseCommandQueue(cl_command_queue queue) {
  OpenclState& s = state();
  Queue last;
  if (drop_reference(s.queues, queue, last)) {
    last.clock->close();
    s.contexts.with(last.context, [](ContextRecord* record) {
      if (record && record->queues) --record->queues;
    });
    if (s.unknown_enqueues.load(std::memory_order_relaxed)) {
      s.contexts.with(last.context, [](ContextRecord* record) {
        if (record) record->unseen_commands = true;
      });
      s.context_traits.changed();
    }
  }
  return next().clReleaseCommandQueue(queue);
}

cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_uint name, size_t value_size, void* value,
                             size_t* value_size_ret) {
  if (name == kQueueReferenceCount) {
    if (cl_context context = context_of(state(), queue)) drain_context(context);
  }
  return next().clGetCommandQueueInfo(queue, name, value_size, value, value_size_ret);
}

// Both end what was in order first: the call that is held up may be one that was enqueued before.
cl_int clSetEventCallback(cl_event event, cl_int status, cl_event_notify notify, void* user_data) {
  end_order_everywhere(state(), Waited::callbacks);
  return next().clSetEventCallback(event, status, notify, user_data);
}

cl_int clSetProgramReleaseCallback(cl_program program, cl_program_notify notify, void* user_data) {
  end_order_everywhere(state(), Waited::callbacks);
  return next().clSetProgramReleaseCallback(program, notify, user_data);
}

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* errcode) {
  return note_kernel(next().clCreateKernel(program, name, errcode));
}

cl_int clCreateKernelsInProgram(cl_program program, cl_uint kernel_count, cl_kernel* kernels,
                                cl_uint* kernel_count_ret) {
  cl_uint made = 0;
  cl_uint* count = kernel_count_ret ? kernel_count_ret : &made;
  const cl_int error = next().clCreateKernelsInProgram(program, kernel_count, kernels, count);
  for (cl_uint i = 0; error == kSuccess && kernels && i < *count && i < kernel_count; ++i) note_kernel(kernels[i]);
  return error;
}

cl_kernel clCloneKernel(cl_kernel source, cl_int* errcode) {
  const cl_kernel clone = note_kernel(next().clCloneKernel(source, errcode));
  if (!clone) return clone;
  Vector<const void*> arguments;
  state().kernels.with(source, [&](Kernel* record) {
    if (record) arguments = record->arguments;
  });
  state().kernels.with(clone, [&](Kernel* record) {
    if (record) record->arguments = std::move(arguments);
  });
  return clone;
}

// A command buffer names memory that commands use again and again, later: nothing of its context is recycled any more.
cl_command_buffer clCreateCommandBufferKHR(cl_uint queue_count, const cl_command_queue* queues,
                                           const cl_bitfield* properties, cl_int* errcode) {
  const void* platform_object = queues && queue_count ? queues[0] : nullptr;
  auto real = extension<decltype(&clCreateCommandBufferKHR)>("clCreateCommandBufferKHR", platform_object);
  OpenclState& s = state();
  for (cl_uint i = 0; queues && i < queue_count; ++i) {
    s.contexts.with(context_of(s, queues[i]), [](ContextRecord* record) {
      if (record) record->command_buffers = true;
    });
  }
  s.context_traits.changed();
  return real(queue_count, queues, properties, errcode);
}

}  // namespace hook

namespace {

void note_unknown_function(const char* name) {
  OpenclState& s = state();
  const bool enqueues = !strncmp(name, "clEnqueue", 9), sets = !strncmp(name, "clSetKernelArg", 14),
             creates = !strncmp(name, "clCreate", 8) || !strncmp(name, "clImport", 8);
  if (enqueues) s.unknown_enqueues = true;
  if (sets) s.unknown_arguments = true;
  if (creates) s.unknown_creators = true;
  if (enqueues || sets || creates) end_order_everywhere(s, Waited::unknown_calls);
}

void* replace_function(void* real, const char* name, const void* platform) {
  if (!real || !name) return real;
  const char* own_name = nullptr;
  void* hook = hook_for(name, &own_name);
  if (hook && remember_extension(own_name, platform, real)) return hook;
  note_unknown_function(name);
  return real;
}

}  // namespace

void* hook::clGetExtensionFunctionAddress(const char* name) {
  return replace_function(next().clGetExtensionFunctionAddress(name), name, nullptr);
}

void* hook::clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char* name) {
  return replace_function(next().clGetExtensionFunctionAddressForPlatform(platform, name), name, platform);
}

}  // namespace cistern::opencl
