// OpenCL memory objects: which buffers are recycled, and the accounting of all.
//
// Handles are the driver's own, so every query about a buffer is answered by the driver. Retains and releases are
// passed on, all but the program's last release of a recyclable buffer: that one gives the buffer to the pool. A buffer
// that anything else could still see (sub-buffers, images, destructor callbacks, maps, references that did not
// come through us) is really released.
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "pool/size_class.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/state.hpp"
#include "shim/process/log.hpp"
#include "shim/process/misuse.hpp"
#include "shim/process/process.hpp"

namespace cistern::opencl {
namespace {

PoolKey key_of(cl_context context, cl_bitfield flags, std::uint64_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(context), flags, bytes};
}

void set(cl_int* errcode, cl_int error) {
  if (errcode) *errcode = error;
}

// --- Accounting

// A handle that the driver has just given, or that the pool gives again.
void adopt(OpenclState& s, const void* handle, MemoryRecord&& record, bool pool_hit = false) {
  record.born_ns = coarse_nanoseconds_since_start();
  s.counters.block_born(record.bytes, pool_hit);
  s.memory.put(handle, std::move(record));
}

// A child is gone: its parent may have been kept by it alone. Released parents end here, and so on upwards.
void parent_lost_child(OpenclState& s, const void* parent) {
  while (parent) {
    const void* grandparent = nullptr;
    bool ended = false;
    Vector<Use> uses;  // ends outside the lock: it may release markers
    s.memory.with(parent, [&](MemoryRecord* record) {
      if (!record || !record->children || --record->children || record->state != MemoryState::orphan) return;
      record->state = MemoryState::dead;
      uses.swap(record->uses);
      ended = true;
      grandparent = record->parent;
      s.counters.bytes_died(record->bytes);
    });
    if (!ended) return;
    remember_dead(s, parent);
    parent = grandparent;
  }
}

void add_child(OpenclState& s, const void* parent, int by) {
  s.memory.with(parent, [&](MemoryRecord* record) {
    if (record) record->children = static_cast<std::uint32_t>(static_cast<int>(record->children) + by);
  });
}

// --- Creation

std::optional<Unpooled> why_not_recycled(OpenclState& s, cl_context context, cl_bitfield flags, std::size_t bytes,
                                         const void* host_pointer) {
  const Options& chosen = options();
  if (host_pointer || (flags & (kMemUseHostPtr | kMemCopyHostPtr))) return Unpooled::host_pointer;
  if (!chosen.opencl_pool) return Unpooled::pool_off;
  if (bytes < chosen.opencl_object_min) return Unpooled::too_small;
  if (bytes > chosen.opencl_object_max) return Unpooled::too_large;
  if (phase() != Phase::running) return Unpooled::exiting;
  std::optional<Unpooled> why;
  s.contexts.with(context, [&](const ContextRecord* record) {
    if (!record)
      why = Unpooled::unknown_context;
    else if (record->inherited)
      why = Unpooled::inherited;
    else if (record->command_buffers)
      why = Unpooled::command_buffer;
  });
  return why;
}

// A call of the driver that makes memory which the pool does not: it fails only if it does so without the pool too.
// `create(errcode)` tells its error through a pointer that is never null.
template <class Create>
auto create_with_room(OpenclState& s, cl_int* errcode, Create create) {
  cl_int own = kSuccess;
  cl_int* error = errcode ? errcode : &own;
  const auto try_once = [&] {
    auto made = create(error);
    return Acquired<decltype(made), cl_int>{made, *error, made != nullptr};
  };
  return (phase() == Phase::running ? s.pool.with_room(try_once) : try_once()).chunk;
}

cl_mem create_recyclable(OpenclState& s, MemoryRecord&& record, cl_int* errcode) {
  const BufferSource::Request request{record.context, record.flags, record.bytes};
  const auto allocated = s.pool.allocate(key_of(record.context, record.flags, record.bytes), request, coarse_now_ns());
  set(errcode, allocated.result.error);
  if (!allocated.result.ok) {
    add(s.counters.failed);
    return nullptr;
  }
  const cl_mem buffer = allocated.result.chunk;
  if (!allocated.hit) add(s.counters.pool_misses);
  record.recyclable = true;
  adopt(s, buffer, std::move(record), allocated.hit);
  return buffer;
}

// Accounts what a creating call of the driver gave.
void* account_created(OpenclState& s, void* handle, MemoryRecord&& record, Unpooled why) {
  if (!handle) {
    add(s.counters.failed);
    return nullptr;
  }
  add(s.counters.driver_allocs);
  s.counters.count_unpooled(why);
  record.site = capture(s, record.api);
  adopt(s, handle, std::move(record));
  return handle;
}

std::uint64_t memory_bytes(OpenclState& s, cl_mem memory) {
  std::size_t bytes = 0;
  s.calls.queries.fetch_add(1, std::memory_order_relaxed);
  return next().clGetMemObjectInfo(memory, kMemSize, sizeof bytes, &bytes, nullptr) == kSuccess ? bytes : 0;
}

// Images, pipes and objects of other interfaces: the driver knows their size. A child shares its parent's memory.
cl_mem account_object(cl_mem memory, cl_context context, cl_bitfield flags, const char* api, MemoryKind kind,
                      Unpooled why, const void* parent = nullptr) {
  OpenclState& s = state();
  MemoryRecord record;
  record.kind = kind;
  record.context = context;
  record.flags = flags;
  record.api = api;
  record.parent = memory ? parent : nullptr;
  record.bytes = memory && !parent ? memory_bytes(s, memory) : 0;
  return static_cast<cl_mem>(account_created(s, memory, std::move(record), why));
}

cl_mem account_buffer(cl_mem buffer, cl_context context, cl_bitfield flags, std::size_t bytes, const char* api,
                      Unpooled why) {
  OpenclState& s = state();
  MemoryRecord record;
  record.context = context;
  record.flags = flags;
  record.api = api;
  record.bytes = bytes;
  return static_cast<cl_mem>(account_created(s, buffer, std::move(record), why));
}

template <class Create>
cl_mem create_image(cl_context context, cl_bitfield flags, const void* parent, const char* api, cl_int* errcode,
                    Create create) {
  OpenclState& s = state();
  if (parent) add_child(s, parent, +1);
  const cl_mem image = create_with_room(s, errcode, create);
  if (!image && parent) add_child(s, parent, -1);
  return account_object(image, context, flags, api, MemoryKind::image, Unpooled::image, parent);
}

template <class Pointer>
void* account_pointer(Pointer pointer, cl_context context, std::size_t bytes, const char* api, MemoryKind kind,
                      Unpooled why) {
  OpenclState& s = state();
  MemoryRecord record;
  record.kind = kind;
  record.context = context;
  record.bytes = bytes;
  record.api = api;
  return account_created(s, pointer, std::move(record), why);
}

void account_pointer_freed(OpenclState& s, const void* pointer) {
  MemoryRecord freed;
  const auto is_pointer = [](const MemoryRecord& record) {
    return record.kind == MemoryKind::svm || record.kind == MemoryKind::usm;
  };
  if (!pointer || !s.memory.take_if(pointer, freed, is_pointer)) return;
  add(s.counters.driver_frees);
  if (!freed.inherited) s.counters.block_died(freed.bytes);
}

// --- Release

struct Release {
  enum class What { unknown, misuse, not_last, pool, really } what = What::unknown;
  Unpooled why = Unpooled::pool_off;
  MemoryRecord record;  // of the last release, with the uses moved out; or what shows the misuse
};

// Commands of a queue that the program gave up may still use it.
bool end_unknown(const MemoryRecord& record) {
  return record.end_unknown || std::any_of(record.uses.begin(), record.uses.end(), [](const Use& use) {
           return use.clock->known(use.number) == Settled::never;
         });
}

std::optional<Unpooled> why_not_pooled(OpenclState& s, const MemoryRecord& record) {
  if (record.children) return Unpooled::has_children;
  if (record.has_callback) return Unpooled::destructor_callback;
  if (record.inherited) return Unpooled::inherited;
  if (phase() != Phase::running) return Unpooled::exiting;
  if (end_unknown(record)) return Unpooled::end_unknown;
  std::optional<Unpooled> why;
  s.contexts.with(record.context, [&](const ContextRecord* context) {
    if (!context)
      why = Unpooled::context_released;
    else if (context->command_buffers)
      why = Unpooled::command_buffer;
    else if (context->unseen_commands)
      why = Unpooled::end_unknown;
  });
  return why;
}

// Decides under the record's lock what the release is; the last one changes the record's state. (A context's record is
// looked at under a memory record's lock, never the other way round.)
Release decide_release(OpenclState& s, cl_mem memory) {
  Release release;
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (!record) return;
    if (record->state == MemoryState::dead || record->state == MemoryState::pooled) {
      release.what = Release::What::misuse;
      release.record = *record;
      return;
    }
    if (record->references > 1) {
      release.what = Release::What::not_last;
      --record->references;
      ++record->releases;
      return;
    }
    if (!record->references) return;  // an orphan: whoever releases it got it from the driver
    record->references = 0;
    ++record->releases;
    const std::optional<Unpooled> why = record->recyclable ? why_not_pooled(s, *record) : Unpooled::pool_off;
    release.what = why ? Release::What::really : Release::What::pool;
    release.why = why.value_or(Unpooled::pool_off);
    record->state = !why ? MemoryState::pooled : record->children ? MemoryState::orphan : MemoryState::dead;
    release.record = std::move(*record);  // takes the uses; the rest stays as it is
  });
  return release;
}

// A driver that gives memory to a buffer only when its first command runs, and takes it back when the last one ends
// (PoCL), needs little for a program that enqueues far ahead. What the pool holds behind pending commands is memory
// that such a program would not have had: bounded by what it has itself.
std::uint64_t waiting_bytes_max(const OpenclState& s) {
  constexpr std::uint64_t kFloor = 32 << 20;
  return kFloor + 2 * read(s.counters.peak_bytes);
}

// Why a buffer that could go to the pool does not, by what only the driver or the pool knows.
std::optional<Unpooled> why_not_kept(OpenclState& s, cl_mem buffer, const MemoryRecord& record, bool waits) {
  if (record.mapped_once && s.source.map_count(buffer)) return Unpooled::mapped;
  if (waits && s.pool.waiting_bytes() + record.bytes > waiting_bytes_max(s)) return Unpooled::too_many_in_flight;
  return std::nullopt;
}

// The program's view is that the buffer is gone. True when the pool has it now.
bool give_to_pool(OpenclState& s, cl_mem buffer, Release& release) {
  MemoryRecord& record = release.record;
  if (s.unknown_enqueues.load(std::memory_order_relaxed)) {
    // Commands that we can't see may use it, on any queue: every queue has to pass a marker.
    record.uses.clear();
    for (auto& clock : clocks_of(record.context)) record.uses.push_back({clock, clock->note_command()});
  }
  // The driver lets go of a buffer a moment after the command's end, and somebody may hold a reference that did not
  // come through us: then it waits too.
  const bool waits = !record.uses.empty() || s.source.reference_count(buffer) != 1;
  if (std::optional<Unpooled> why = why_not_kept(s, buffer, record, waits)) {
    release.why = *why;
    s.memory.with(buffer, [](MemoryRecord* kept) {
      if (kept) kept->state = MemoryState::dead;
    });
    return false;
  }
  s.counters.block_died(record.bytes);
  s.pool.give(key_of(record.context, record.flags, record.bytes), buffer, std::move(record.uses), waits,
              coarse_now_ns());
  return true;
}

cl_int really_release(OpenclState& s, cl_mem memory, Release& release) {
  MemoryRecord& record = release.record;
  if (record.recyclable) s.counters.count_unpooled(release.why);
  record.uses.clear();  // markers hold the queue and its context: they go first
  if (record.children) {
    s.counters.block_died(0);  // its memory lives on in its children
  } else if (!record.inherited) {
    s.counters.block_died(record.bytes);
  }
  if (!record.children) remember_dead(s, memory);
  add(s.counters.driver_frees);
  // The record is dead before the real release: another thread may get the same handle at once.
  const cl_int error = next().clReleaseMemObject(memory);
  if (!record.children) parent_lost_child(s, record.parent);
  return error;
}

// Where the last release came from, for the line about a second one. Noted before the handle leaves our hands.
void note_released_site(OpenclState& s, cl_mem memory) {
  if (!s.sites_on) return;
  const SiteId site = capture_site("clReleaseMemObject");
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (record) record->released_site = site;
  });
}

// A handle that we never saw: made through a way that we don't know, or no memory object at all (PoCL would crash).
bool plausible_object(const void* handle) {
  OpenclState& s = state();
  const auto is_there = [](const auto* record) { return record != nullptr; };
  if (s.contexts.with(handle, is_there) || s.queues.with(handle, is_there) || s.kernels.with(handle, is_there) ||
      s.counted.with(handle, is_there))
    return false;
  void* word = nullptr;
  if (!read_word(handle, &word)) return false;
  bool known = false;
  s.contexts.for_each(
      [&](const void* context, const ContextRecord&) { known = known || *static_cast<void* const*>(context) == word; });
  return known;
}

cl_int pass_unknown(cl_mem memory, const char* api, cl_int (*real)(cl_mem)) {
  if (memory && !plausible_object(memory)) {
    report_unknown_handle(api, memory);
    return kInvalidMemObject;
  }
  if (memory) state().counters.count_unpooled(Unpooled::unknown_handle);
  return real(memory);
}

cl_int refuse_released(OpenclState& s, cl_mem memory, const char* api, const MemoryRecord& record) {
  // Objects of unknown creators may stand at a dead object's address.
  if (record.state == MemoryState::dead && s.unknown_creators.load(std::memory_order_relaxed)) {
    s.counters.count_unpooled(Unpooled::unknown_handle);
    return !strcmp(api, "clRetainMemObject") ? next().clRetainMemObject(memory) : next().clReleaseMemObject(memory);
  }
  report_released_handle(api, memory, kind_name(record.kind), record.site, record.released_site);
  return kInvalidMemObject;
}

}  // namespace

namespace hook {

cl_mem clCreateBuffer(cl_context context, cl_bitfield flags, size_t size, void* host_pointer, cl_int* errcode) {
  OpenclState& s = state();
  if (std::optional<Unpooled> why = why_not_recycled(s, context, flags, size, host_pointer)) [[unlikely]]
    return account_buffer(create_with_room(s, errcode,
                                           [&](cl_int* error) {
                                             return next().clCreateBuffer(context, flags, size, host_pointer, error);
                                           }),
                          context, flags, size, "clCreateBuffer", *why);
  MemoryRecord record;
  record.context = context;
  record.flags = flags;
  record.bytes = size;
  record.api = "clCreateBuffer";
  record.site = capture(s, record.api);
  return create_recyclable(s, std::move(record), errcode);
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_bitfield* properties, cl_bitfield flags, size_t size,
                                    void* host_pointer, cl_int* errcode) {
  const cl_mem buffer = create_with_room(state(), errcode, [&](cl_int* error) {
    return next().clCreateBufferWithProperties(context, properties, flags, size, host_pointer, error);
  });
  return account_buffer(buffer, context, flags, size, "clCreateBufferWithProperties", Unpooled::properties);
}

cl_mem clCreateBufferWithPropertiesINTEL(cl_context context, const cl_bitfield* properties, cl_bitfield flags,
                                         size_t size, void* host_pointer, cl_int* errcode) {
  auto real = extension<decltype(&clCreateBufferWithPropertiesINTEL)>("clCreateBufferWithPropertiesINTEL", context);
  const cl_mem buffer = create_with_room(
      state(), errcode, [&](cl_int* error) { return real(context, properties, flags, size, host_pointer, error); });
  return account_buffer(buffer, context, flags, size, "clCreateBufferWithPropertiesINTEL", Unpooled::properties);
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_bitfield flags, cl_uint create_type, const void* create_info,
                         cl_int* errcode) {
  OpenclState& s = state();
  MemoryRecord parent;
  s.memory.with(buffer, [&](MemoryRecord* record) {
    if (record) parent = *record, ++record->children;
  });
  if (parent.state == MemoryState::pooled) {
    add_child(s, buffer, -1);
    set(errcode, refuse_released(s, buffer, "clCreateSubBuffer", parent));
    return nullptr;
  }
  const cl_mem child = next().clCreateSubBuffer(buffer, flags, create_type, create_info, errcode);
  if (!child) add_child(s, buffer, -1);
  return account_object(child, parent.context, flags, "clCreateSubBuffer", MemoryKind::sub_buffer, Unpooled::sub_buffer,
                        buffer);
}

cl_mem clCreateImage(cl_context context, cl_bitfield flags, const void* format, const cl_image_description* description,
                     void* host_pointer, cl_int* errcode) {
  return create_image(
      context, flags, description ? description->memory : nullptr, "clCreateImage", errcode,
      [&](cl_int* error) { return next().clCreateImage(context, flags, format, description, host_pointer, error); });
}

cl_mem clCreateImageWithProperties(cl_context context, const cl_bitfield* properties, cl_bitfield flags,
                                   const void* format, const cl_image_description* description, void* host_pointer,
                                   cl_int* errcode) {
  return create_image(context, flags, description ? description->memory : nullptr, "clCreateImageWithProperties",
                      errcode, [&](cl_int* error) {
                        return next().clCreateImageWithProperties(context, properties, flags, format, description,
                                                                  host_pointer, error);
                      });
}

cl_mem clCreateImage2D(cl_context context, cl_bitfield flags, const void* format, size_t width, size_t height,
                       size_t row_pitch, void* host_pointer, cl_int* errcode) {
  return create_image(context, flags, nullptr, "clCreateImage2D", errcode, [&](cl_int* error) {
    return next().clCreateImage2D(context, flags, format, width, height, row_pitch, host_pointer, error);
  });
}

cl_mem clCreateImage3D(cl_context context, cl_bitfield flags, const void* format, size_t width, size_t height,
                       size_t depth, size_t row_pitch, size_t slice_pitch, void* host_pointer, cl_int* errcode) {
  return create_image(context, flags, nullptr, "clCreateImage3D", errcode, [&](cl_int* error) {
    return next().clCreateImage3D(context, flags, format, width, height, depth, row_pitch, slice_pitch, host_pointer,
                                  error);
  });
}

cl_mem clCreatePipe(cl_context context, cl_bitfield flags, cl_uint packet_size, cl_uint max_packets,
                    const intptr_t* properties, cl_int* errcode) {
  const cl_mem pipe = create_with_room(state(), errcode, [&](cl_int* error) {
    return next().clCreatePipe(context, flags, packet_size, max_packets, properties, error);
  });
  return account_object(pipe, context, flags, "clCreatePipe", MemoryKind::pipe, Unpooled::pipe);
}

cl_mem clCreateFromGLBuffer(cl_context context, cl_bitfield flags, cl_uint object, cl_int* errcode) {
  return account_object(next().clCreateFromGLBuffer(context, flags, object, errcode), context, flags,
                        "clCreateFromGLBuffer", MemoryKind::external, Unpooled::external);
}

cl_mem clCreateFromGLTexture(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                             cl_int* errcode) {
  return account_object(next().clCreateFromGLTexture(context, flags, target, level, texture, errcode), context, flags,
                        "clCreateFromGLTexture", MemoryKind::external, Unpooled::external);
}

cl_mem clCreateFromGLTexture2D(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                               cl_int* errcode) {
  return account_object(next().clCreateFromGLTexture2D(context, flags, target, level, texture, errcode), context, flags,
                        "clCreateFromGLTexture2D", MemoryKind::external, Unpooled::external);
}

cl_mem clCreateFromGLTexture3D(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                               cl_int* errcode) {
  return account_object(next().clCreateFromGLTexture3D(context, flags, target, level, texture, errcode), context, flags,
                        "clCreateFromGLTexture3D", MemoryKind::external, Unpooled::external);
}

cl_mem clCreateFromGLRenderbuffer(cl_context context, cl_bitfield flags, cl_uint object, cl_int* errcode) {
  return account_object(next().clCreateFromGLRenderbuffer(context, flags, object, errcode), context, flags,
                        "clCreateFromGLRenderbuffer", MemoryKind::external, Unpooled::external);
}

cl_mem clCreateFromEGLImageKHR(cl_context context, void* display, void* image, cl_bitfield flags,
                               const intptr_t* properties, cl_int* errcode) {
  return account_object(next().clCreateFromEGLImageKHR(context, display, image, flags, properties, errcode), context,
                        flags, "clCreateFromEGLImageKHR", MemoryKind::external, Unpooled::external);
}

cl_int clRetainMemObject(cl_mem memory) {
  OpenclState& s = state();
  enum class Found { no, yes, misuse } found = Found::no;
  MemoryRecord shown;
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (!record) return;
    if (record->state == MemoryState::dead || record->state == MemoryState::pooled) {
      found = Found::misuse;
      shown = *record;
      return;
    }
    found = Found::yes;
    // An orphan comes back to life: the program got it through a sub-buffer.
    if (record->state == MemoryState::orphan) record->state = MemoryState::live, s.counters.block_revived();
    ++record->references;
    ++record->retains;
  });
  if (found == Found::no) return pass_unknown(memory, "clRetainMemObject", next().clRetainMemObject);
  if (found == Found::misuse) return refuse_released(s, memory, "clRetainMemObject", shown);
  return next().clRetainMemObject(memory);
}

cl_int clReleaseMemObject(cl_mem memory) {
  OpenclState& s = state();
  Release release = decide_release(s, memory);
  switch (release.what) {
    case Release::What::unknown:
      return pass_unknown(memory, "clReleaseMemObject", next().clReleaseMemObject);
    case Release::What::misuse:
      return refuse_released(s, memory, "clReleaseMemObject", release.record);
    case Release::What::not_last:
      return next().clReleaseMemObject(memory);
    case Release::What::pool:
      note_released_site(s, memory);
      if (give_to_pool(s, memory, release)) return kSuccess;
      break;
    case Release::What::really:
      note_released_site(s, memory);
      break;
  }
  return really_release(s, memory, release);
}

cl_int clSetMemObjectDestructorCallback(cl_mem memory, cl_mem_notify notify, void* user_data) {
  const cl_int error = next().clSetMemObjectDestructorCallback(memory, notify, user_data);
  if (error == kSuccess)
    state().memory.with(memory, [](MemoryRecord* record) {
      if (record) record->has_callback = true;
    });
  return error;
}

// It does not say why it fails.
void* clSVMAlloc(cl_context context, cl_bitfield flags, size_t size, cl_uint alignment) {
  void* pointer = create_with_room(state(), nullptr, [&](cl_int* error) {
    *error = kMemObjectAllocationFailure;
    return next().clSVMAlloc(context, flags, size, alignment);
  });
  return account_pointer(pointer, context, size, "clSVMAlloc", MemoryKind::svm, Unpooled::svm);
}

void clSVMFree(cl_context context, void* pointer) {
  account_pointer_freed(state(), pointer);
  next().clSVMFree(context, pointer);
}

cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint pointer_count, void** pointers, cl_svm_notify notify,
                        void* user_data, cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  const cl_int error =
      next().clEnqueueSVMFree(queue, pointer_count, pointers, notify, user_data, wait_count, wait_list, event);
  if (error != kSuccess) return error;
  note_event(event);
  // With a callback the program frees the pointers itself, through whatever it calls there.
  for (cl_uint i = 0; pointers && !notify && i < pointer_count; ++i) account_pointer_freed(state(), pointers[i]);
  return error;
}

void* clHostMemAllocINTEL(cl_context context, const cl_bitfield* properties, size_t size, cl_uint alignment,
                          cl_int* errcode) {
  auto real = extension<decltype(&clHostMemAllocINTEL)>("clHostMemAllocINTEL", context);
  void* pointer = create_with_room(state(), errcode,
                                   [&](cl_int* error) { return real(context, properties, size, alignment, error); });
  return account_pointer(pointer, context, size, "clHostMemAllocINTEL", MemoryKind::usm, Unpooled::usm);
}

void* clDeviceMemAllocINTEL(cl_context context, cl_device_id device, const cl_bitfield* properties, size_t size,
                            cl_uint alignment, cl_int* errcode) {
  auto real = extension<decltype(&clDeviceMemAllocINTEL)>("clDeviceMemAllocINTEL", context);
  void* pointer = create_with_room(
      state(), errcode, [&](cl_int* error) { return real(context, device, properties, size, alignment, error); });
  return account_pointer(pointer, context, size, "clDeviceMemAllocINTEL", MemoryKind::usm, Unpooled::usm);
}

void* clSharedMemAllocINTEL(cl_context context, cl_device_id device, const cl_bitfield* properties, size_t size,
                            cl_uint alignment, cl_int* errcode) {
  auto real = extension<decltype(&clSharedMemAllocINTEL)>("clSharedMemAllocINTEL", context);
  void* pointer = create_with_room(
      state(), errcode, [&](cl_int* error) { return real(context, device, properties, size, alignment, error); });
  return account_pointer(pointer, context, size, "clSharedMemAllocINTEL", MemoryKind::usm, Unpooled::usm);
}

cl_int clMemFreeINTEL(cl_context context, void* pointer) {
  account_pointer_freed(state(), pointer);
  return extension<decltype(&clMemFreeINTEL)>("clMemFreeINTEL", context)(context, pointer);
}

cl_int clMemBlockingFreeINTEL(cl_context context, void* pointer) {
  account_pointer_freed(state(), pointer);
  return extension<decltype(&clMemBlockingFreeINTEL)>("clMemBlockingFreeINTEL", context)(context, pointer);
}

}  // namespace hook
}  // namespace cistern::opencl
