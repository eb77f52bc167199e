// exit() with live objects: buffers, one over-retained, a sub-buffer of a released parent, an image.
// harness: leaks=6
// harness: exit=3
#include "observe.hpp"

static cl_mem kept(const Setup& cl) { return cl.buffer(10000); }
static cl_mem over_retained(const Setup& cl) {
  cl_mem buffer = cl.buffer(20000);
  clRetainMemObject(buffer);
  clRetainMemObject(buffer);
  clReleaseMemObject(buffer);
  return buffer;
}
static cl_mem part_of_released(const Setup& cl) {
  cl_mem parent = cl.buffer(40960);
  cl_mem part = sub_buffer(parent, 4096, 8192);
  clReleaseMemObject(parent);
  return part;
}

int main() {
  Setup cl;
  for (int i = 0; i < 3; ++i) kept(cl);
  over_retained(cl);
  part_of_released(cl);
  cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc flat{};
  flat.image_type = CL_MEM_OBJECT_IMAGE2D;
  flat.image_width = flat.image_height = 32;
  counted(clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &flat, nullptr, nullptr));
  for (int i = 0; i < 5; ++i) clReleaseMemObject(cl.buffer(10000));
  exit(finish(3));
}
