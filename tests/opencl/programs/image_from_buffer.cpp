// Images made from a buffer share its storage and hold it: 1D buffer images and 2D images over a pitch.
// harness: recycles
#include "observe.hpp"

constexpr size_t kWords = 1024;

static void one(const Setup& cl, cl_mem_object_type type) {
  cl_mem buffer = cl.buffer(kWords * 4);
  put(cl.queue, buffer, kWords * 4, 3);
  cl_image_format format{CL_R, CL_UNSIGNED_INT32};
  cl_image_desc description{};
  description.image_type = type;
  description.image_width = type == CL_MEM_OBJECT_IMAGE1D_BUFFER ? kWords : 32;
  description.image_height = type == CL_MEM_OBJECT_IMAGE1D_BUFFER ? 0 : 32;
  description.buffer = buffer;
  cl_int code = 0;
  cl_mem image = counted(clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &description, nullptr, &code));
  say("image 0x%x: %d", type, code);
  if (!image) {
    say("buffer count %u", references(buffer));
    clReleaseMemObject(buffer);
    return;
  }
  say("buffer count %u, image count %u, associated %s, type 0x%x, size %zu", references(buffer), references(image),
      memory_info<cl_mem>(image, CL_MEM_ASSOCIATED_MEMOBJECT) == buffer ? "buffer" : "other",
      memory_info<cl_mem_object_type>(image, CL_MEM_TYPE), size_of(image));
  say("buffer released %d", clReleaseMemObject(buffer));
  cl_mem others[3];
  for (cl_mem& other : others) put(cl.queue, other = cl.buffer(kWords * 4), kWords * 4, 77);
  size_t origin[3] = {0, 0, 0}, region[3] = {description.image_width, 1, 1};
  std::vector<uint32_t> row(description.image_width);
  code = clEnqueueReadImage(cl.queue, image, CL_TRUE, origin, region, 0, 0, row.data(), 0, nullptr, nullptr);
  if (code == CL_SUCCESS) {
    say("image read: %s", describe(row).c_str());
  } else {
    say("image read: %d", code);
  }
  cl_mem through = memory_info<cl_mem>(image, CL_MEM_ASSOCIATED_MEMOBJECT);
  if (through)
    say("buffer through the image: count %u, %s", references(through), contents(cl.queue, through, kWords * 4).c_str());
  say("image released %d", clReleaseMemObject(image));
  for (cl_mem other : others) say("other %s", contents(cl.queue, other, kWords * 4).c_str());
  for (cl_mem other : others) clReleaseMemObject(other);
}

int main() {
  Setup cl;
  for (int round = 0; round < 2; ++round) {
    one(cl, CL_MEM_OBJECT_IMAGE1D_BUFFER);
    one(cl, CL_MEM_OBJECT_IMAGE2D);
  }
  cl.release();
  return finish();
}
