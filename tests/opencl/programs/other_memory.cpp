// Memory that is only tracked: buffers with properties, images of every sort, pipes; codes and contents as without it.
#include "observe.hpp"

static void with_properties(const Setup& cl) {
  cl_int code = 1;
  cl_mem buffer = counted(clCreateBufferWithProperties(cl.context, nullptr, CL_MEM_READ_WRITE, 4096, nullptr, &code));
  say("with no properties: %d", code);
  if (buffer) {
    put(cl.queue, buffer, 4096, 1);
    size_t bytes = 99;
    cl_int query = clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, nullptr, &bytes);
    say("%s, properties %d %zu, count %u", contents(cl.queue, buffer, 4096).c_str(), query, bytes, references(buffer));
    clReleaseMemObject(buffer);
  }
  cl_mem_properties none[] = {0};
  buffer = counted(clCreateBufferWithProperties(cl.context, none, CL_MEM_READ_WRITE, 4096, nullptr, &code));
  say("with an empty list: %d", code);
  if (buffer) {
    size_t bytes = 99;
    cl_int query = clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, nullptr, &bytes);
    say("properties %d %zu", query, bytes);
    clReleaseMemObject(buffer);
  }
  cl_mem_properties unknown[] = {0x12345, 1, 0};
  buffer = counted(clCreateBufferWithProperties(cl.context, unknown, CL_MEM_READ_WRITE, 4096, nullptr, &code));
  say("with an unknown property: %d", code);
  if (buffer) clReleaseMemObject(buffer);
  // A buffer without properties of the same size must not answer as one with them, nor the reverse.
  buffer = cl.buffer(4096);
  size_t bytes = 99;
  cl_int query = clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, nullptr, &bytes);
  say("plain buffer: properties %d %zu", query, bytes);
  clReleaseMemObject(buffer);
}

static void image(const Setup& cl, const char* name, cl_image_desc description, cl_mem_flags flags, void* host) {
  cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_int code = 1;
  cl_mem made = counted(clCreateImage(cl.context, flags, &format, &description, host, &code));
  say("%s: %d", name, code);
  if (!made) return;
  uint32_t colour[4] = {1, 2, 3, 4};
  size_t origin[3] = {0, 0, 0}, region[3] = {description.image_width, 1, 1};
  cl_int filled = clEnqueueFillImage(cl.queue, made, colour, origin, region, 0, nullptr, nullptr);
  std::vector<uint32_t> row(description.image_width);
  cl_int read = clEnqueueReadImage(cl.queue, made, CL_TRUE, origin, region, 0, 0, row.data(), 0, nullptr, nullptr);
  say("  size %zu, type 0x%x, count %u, fill %d, read %d, row %s", size_of(made),
      memory_info<cl_mem_object_type>(made, CL_MEM_TYPE), references(made), filled, read, describe(row).c_str());
  clRetainMemObject(made);
  clReleaseMemObject(made);
  clReleaseMemObject(made);
}

static void images(const Setup& cl) {
  std::vector<uint32_t> host(64 * 64, 7);
  cl_image_desc description{};
  description.image_width = 64;
  description.image_type = CL_MEM_OBJECT_IMAGE1D;
  image(cl, "1D", description, CL_MEM_READ_WRITE, nullptr);
  description.image_height = 64;
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  image(cl, "2D", description, CL_MEM_READ_WRITE, nullptr);
  image(cl, "2D of host memory", description, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, host.data());
  image(cl, "2D copied", description, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, host.data());
  image(cl, "2D with a pointer and no flag", description, CL_MEM_READ_WRITE, host.data());
  description.image_depth = 4;
  description.image_type = CL_MEM_OBJECT_IMAGE3D;
  image(cl, "3D", description, CL_MEM_READ_WRITE, nullptr);
  description.image_array_size = 3;
  description.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
  image(cl, "2D array", description, CL_MEM_READ_WRITE, nullptr);
  description.image_width = 0;
  image(cl, "empty", description, CL_MEM_READ_WRITE, nullptr);
  cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_int code = 1;
  cl_mem old = counted(clCreateImage2D(cl.context, CL_MEM_READ_WRITE, &format, 16, 16, 0, nullptr, &code));
  say("clCreateImage2D: %d", code);
  if (old) clReleaseMemObject(old);
  old = counted(clCreateImage3D(cl.context, CL_MEM_READ_WRITE, &format, 16, 16, 4, 0, 0, nullptr, &code));
  say("clCreateImage3D: %d", code);
  if (old) clReleaseMemObject(old);
  cl_mem_properties none[] = {0};
  cl_image_desc flat{};
  flat.image_type = CL_MEM_OBJECT_IMAGE2D;
  flat.image_width = flat.image_height = 16;
  old = counted(clCreateImageWithProperties(cl.context, none, CL_MEM_READ_WRITE, &format, &flat, nullptr, &code));
  say("clCreateImageWithProperties: %d", code);
  if (old) clReleaseMemObject(old);
}

static void copies_between(const Setup& cl) {
  cl_mem buffer = cl.buffer(4096), back = cl.buffer(4096);
  put(cl.queue, buffer, 4096, 12);
  cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc flat{};
  flat.image_type = CL_MEM_OBJECT_IMAGE2D;
  flat.image_width = flat.image_height = 32;
  cl_mem made = counted(clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &flat, nullptr, nullptr));
  size_t origin[3] = {0, 0, 0}, region[3] = {32, 32, 1};
  cl_event gate = cl.gate();
  cl_int to = clEnqueueCopyBufferToImage(cl.queue, buffer, made, 0, origin, region, 1, &gate, nullptr);
  cl_int from = clEnqueueCopyImageToBuffer(cl.queue, made, back, origin, region, 0, 0, nullptr, nullptr);
  clReleaseMemObject(buffer);
  clReleaseMemObject(made);
  cl_command_queue side = cl.make_queue();
  cl_mem other = cl.buffer(4096);
  put(side, other, 4096, 13);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("to image %d, from image %d: %s, other %s", to, from, contents(side, back, 4096).c_str(),
      contents(side, other, 4096).c_str());
  clReleaseMemObject(back);
  clReleaseMemObject(other);
  clReleaseEvent(gate);
  clReleaseCommandQueue(side);
}

int main() {
  Setup cl;
  for (int round = 0; round < 2; ++round) {
    with_properties(cl);
    images(cl);
    copies_between(cl);
    cl_int code = 1;
    cl_mem pipe = counted(clCreatePipe(cl.context, CL_MEM_HOST_NO_ACCESS, 4, 16, nullptr, &code));
    say("pipe: %d", code);
    if (pipe) clReleaseMemObject(pipe);
  }
  cl.release();
  return finish();
}
