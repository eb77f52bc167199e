// Memory objects that are never pooled: sub-buffers, images, pipes, objects of other interfaces. Passed on, and
// accounted with their call site.
//
// A sub-buffer, and an image that is made from a buffer, share their parent's memory: the parent counts them as its
// children, from before the real call on, and is not recycled while it has one (release.cpp).
#include "shim/opencl/hooks/account.hpp"
#include "shim/opencl/hooks/copied.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/misuse.hpp"
#include "shim/opencl/hooks/passed_with_room.hpp"

namespace cistern::opencl {
namespace {

void add_child(OpenclState& s, const void* parent, int by) {
  s.memory.with(parent, [&](MemoryRecord* record) {
    if (record) record->children = static_cast<std::uint32_t>(static_cast<int>(record->children) + by);
  });
}

// What an object is, and the call that made it.
struct Made {
  MemoryKind kind;
  const char* api;
  Unpooled why;
};

// The driver knows the size of an object. A child has none of its own.
cl_mem account_object(cl_mem memory, const Made& made, cl_context context, cl_bitfield flags,
                      const void* parent = nullptr) {
  const std::uint64_t bytes = memory && !parent ? state().source.bytes(memory) : 0;
  return account_created(
      memory,
      {.kind = made.kind, .context = context, .flags = flags, .bytes = bytes, .parent = parent, .api = made.api},
      made.why);
}

// Made of a buffer's memory, or with the host's as its first contents.
struct ImageOf {
  const void *parent, *host;
};

// A child more, unless the program has released the parent and the pool keeps it: whose the memory will be.
bool refused_as_parent(OpenclState& s, const void* parent, const char* api, cl_int* errcode) {
  MemoryRecord kept;
  const bool refused = parent && s.memory.with(parent, [&](MemoryRecord* record) {
    if (!record) return false;
    if (record->state == MemoryState::pooled) return kept = *record, true;
    return ++record->children, false;
  });
  if (!refused) return false;
  const cl_int error = refuse_released(static_cast<cl_mem>(const_cast<void*>(parent)), api, kept);
  if (errcode) *errcode = error;
  return true;
}

template <class Create>
cl_mem create_image(const char* api, cl_context context, cl_bitfield flags, const ImageOf& of, cl_int* errcode,
                    Create create) {
  OpenclState& s = state();
  const void* const parent = of.parent;
  if (refused_as_parent(s, parent, api, errcode)) return nullptr;
  const InitialCopy copy(s, api, flags, of.host);
  const cl_mem image = create_with_room({api, context, 0}, errcode, create);
  if (!image && parent) add_child(s, parent, -1);
  copy.count(image != nullptr, image && of.host ? s.source.bytes(image) : 0);
  return account_object(image, {MemoryKind::image, api, Unpooled::image}, context, flags, parent);
}

const void* parent_of(const cl_image_description* description) { return description ? description->memory : nullptr; }

cl_mem account_external(cl_mem memory, const char* api, cl_context context, cl_bitfield flags) {
  return account_object(memory, {MemoryKind::external, api, Unpooled::external}, context, flags);
}

}  // namespace

namespace hook {

cl_mem clCreateSubBuffer(cl_mem buffer, cl_bitfield flags, cl_uint create_type, const void* create_info,
                         cl_int* errcode) {
  OpenclState& s = state();
  if (refused_as_parent(s, buffer, "clCreateSubBuffer", errcode)) return nullptr;
  const cl_context context =
      s.memory.with(buffer, [](const MemoryRecord* record) { return record ? record->context : nullptr; });
  const cl_mem child = next().clCreateSubBuffer(buffer, flags, create_type, create_info, errcode);
  if (!child) add_child(s, buffer, -1);
  return account_object(child, {MemoryKind::sub_buffer, "clCreateSubBuffer", Unpooled::sub_buffer}, context, flags,
                        buffer);
}

cl_mem clCreateImage(cl_context context, cl_bitfield flags, const void* format, const cl_image_description* description,
                     void* host_pointer, cl_int* errcode) {
  return create_image(
      "clCreateImage", context, flags, {parent_of(description), host_pointer}, errcode,
      [&](cl_int* error) { return next().clCreateImage(context, flags, format, description, host_pointer, error); });
}

cl_mem clCreateImageWithProperties(cl_context context, const cl_bitfield* properties, cl_bitfield flags,
                                   const void* format, const cl_image_description* description, void* host_pointer,
                                   cl_int* errcode) {
  return create_image("clCreateImageWithProperties", context, flags, {parent_of(description), host_pointer}, errcode,
                      [&](cl_int* error) {
                        return next().clCreateImageWithProperties(context, properties, flags, format, description,
                                                                  host_pointer, error);
                      });
}

cl_mem clCreateImage2D(cl_context context, cl_bitfield flags, const void* format, size_t width, size_t height,
                       size_t row_pitch, void* host_pointer, cl_int* errcode) {
  return create_image("clCreateImage2D", context, flags, {nullptr, host_pointer}, errcode, [&](cl_int* error) {
    return next().clCreateImage2D(context, flags, format, width, height, row_pitch, host_pointer, error);
  });
}

cl_mem clCreateImage3D(cl_context context, cl_bitfield flags, const void* format, size_t width, size_t height,
                       size_t depth, size_t row_pitch, size_t slice_pitch, void* host_pointer, cl_int* errcode) {
  return create_image("clCreateImage3D", context, flags, {nullptr, host_pointer}, errcode, [&](cl_int* error) {
    return next().clCreateImage3D(context, flags, format, width, height, depth, row_pitch, slice_pitch, host_pointer,
                                  error);
  });
}

cl_mem clCreatePipe(cl_context context, cl_bitfield flags, cl_uint packet_size, cl_uint max_packets,
                    const intptr_t* properties, cl_int* errcode) {
  const cl_mem pipe = create_with_room({"clCreatePipe", context, 0}, errcode, [&](cl_int* error) {
    return next().clCreatePipe(context, flags, packet_size, max_packets, properties, error);
  });
  return account_object(pipe, {MemoryKind::pipe, "clCreatePipe", Unpooled::pipe}, context, flags);
}

cl_mem clCreateFromGLBuffer(cl_context context, cl_bitfield flags, cl_uint object, cl_int* errcode) {
  return account_external(next().clCreateFromGLBuffer(context, flags, object, errcode), "clCreateFromGLBuffer", context,
                          flags);
}

cl_mem clCreateFromGLTexture(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                             cl_int* errcode) {
  return account_external(next().clCreateFromGLTexture(context, flags, target, level, texture, errcode),
                          "clCreateFromGLTexture", context, flags);
}

cl_mem clCreateFromGLTexture2D(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                               cl_int* errcode) {
  return account_external(next().clCreateFromGLTexture2D(context, flags, target, level, texture, errcode),
                          "clCreateFromGLTexture2D", context, flags);
}

cl_mem clCreateFromGLTexture3D(cl_context context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture,
                               cl_int* errcode) {
  return account_external(next().clCreateFromGLTexture3D(context, flags, target, level, texture, errcode),
                          "clCreateFromGLTexture3D", context, flags);
}

cl_mem clCreateFromGLRenderbuffer(cl_context context, cl_bitfield flags, cl_uint object, cl_int* errcode) {
  return account_external(next().clCreateFromGLRenderbuffer(context, flags, object, errcode),
                          "clCreateFromGLRenderbuffer", context, flags);
}

cl_mem clCreateFromEGLImageKHR(cl_context context, void* display, void* image, cl_bitfield flags,
                               const intptr_t* properties, cl_int* errcode) {
  return account_external(next().clCreateFromEGLImageKHR(context, display, image, flags, properties, errcode),
                          "clCreateFromEGLImageKHR", context, flags);
}

}  // namespace hook
}  // namespace cistern::opencl
