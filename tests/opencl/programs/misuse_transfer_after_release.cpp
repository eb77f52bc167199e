// Transfers of a buffer after its last release: the native error, one line for each place, and the next buffer of its
// key keeps what it holds. A kernel's argument is not looked at.
// harness: only-pooled
// harness: stderr=cistern: clEnqueueWriteBuffer\(0x\w+\): buffer already released, .+, released at main .+, used at .+
// harness: stderr=cistern: clEnqueueReadBuffer\(0x\w+\): buffer already released, .+, released at main .+, used at .+
// harness: stderr=cistern: clEnqueueWriteBufferRect\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueReadBufferRect\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueFillBuffer\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueCopyBuffer\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueCopyBuffer\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueMapBuffer\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clEnqueueMapBuffer\(0x\w+\): buffer already released, .+, used at .+
// harness: stderr=cistern: clCreateImage\(0x\w+\): buffer already released, .+, released at main .+
#include "observe.hpp"

int main() {
  constexpr size_t kBytes = 4096;
  Setup cl;
  const cl_command_queue queue = cl.queue;
  cl_mem buffer = cl.buffer(kBytes), other = cl.buffer(2 * kBytes);
  put(queue, buffer, kBytes, 1);
  put(queue, other, 2 * kBytes, 2);
  say("release %d", clReleaseMemObject(buffer));
  static char host[kBytes];
  const size_t none[3] = {0, 0, 0}, region[3] = {16, 4, 1};
  const int pattern = 9;
  for (int i = 0; i < 3; ++i)
    say("write %d", clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, kBytes, host, 0, nullptr, nullptr));
  say("read %d", clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, kBytes, host, 0, nullptr, nullptr));
  say("write rect %d",
      clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, none, none, region, 64, 0, 64, 0, host, 0, nullptr, nullptr));
  say("read rect %d",
      clEnqueueReadBufferRect(queue, buffer, CL_TRUE, none, none, region, 64, 0, 64, 0, host, 0, nullptr, nullptr));
  say("fill %d", clEnqueueFillBuffer(queue, buffer, &pattern, sizeof pattern, 0, kBytes, 0, nullptr, nullptr));
  say("copy to %d", clEnqueueCopyBuffer(queue, other, buffer, 0, 0, kBytes, 0, nullptr, nullptr));
  say("copy from %d", clEnqueueCopyBuffer(queue, buffer, other, 0, 0, kBytes, 0, nullptr, nullptr));
  cl_int error = 0;
  const void* mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, kBytes, 0, nullptr, nullptr, &error);
  say("map %d, %s", error, mapped ? "mapped" : "null");
  mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, kBytes, 0, nullptr, nullptr, nullptr);
  say("map %s", mapped ? "mapped" : "null");
  say("without a queue %d", clEnqueueWriteBuffer(nullptr, buffer, CL_TRUE, 0, kBytes, host, 0, nullptr, nullptr));
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc of{};
  of.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
  of.image_width = 64;
  of.mem_object = buffer;
  const void* image = clCreateImage(cl.context, 0, &format, &of, nullptr, &error);
  say("image %d, %s", error, image ? "made" : "null");
  cl_mem next = cl.buffer(kBytes);
  put(queue, next, kBytes, 3);
  say("next %s, other %s", contents(queue, next, kBytes).c_str(), contents(queue, other, 2 * kBytes).c_str());
  say("release %d", clReleaseMemObject(next));
  say("release %d", clReleaseMemObject(other));
  cl.release();
  return finish();
}
