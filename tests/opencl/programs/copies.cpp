// Every command that copies, with memory of each kind: the bytes arrive, and the report's table of transfers has each
// copy once. A line `copied: direction, memory, way, count, bytes, failed, timed` is a row that it must have.
// harness: transfers
#include "observe.hpp"

namespace {

constexpr size_t kBytes = 64 << 10;

std::vector<unsigned char> pattern(unsigned first) {
  std::vector<unsigned char> made(kBytes);
  for (size_t i = 0; i < kBytes; ++i) made[i] = static_cast<unsigned char>(first + i * 7);
  return made;
}

void arrived(const char* what, const unsigned char* found, const std::vector<unsigned char>& expected,
             size_t bytes = kBytes) {
  say("%s: %s", what, memcmp(found, expected.data(), bytes) == 0 ? "arrived" : "DIFFERENT");
}

void buffers(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(1);
  std::vector<unsigned char> target(kBytes);
  const cl_mem one = cl.buffer(kBytes), other = cl.buffer(kBytes);
  need(clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, 0, kBytes, source.data(), 0, nullptr, nullptr), "write");
  need(clEnqueueCopyBuffer(cl.queue, one, other, 0, 0, kBytes, 0, nullptr, nullptr), "copy");
  need(clEnqueueReadBuffer(cl.queue, other, CL_TRUE, 0, kBytes, target.data(), 0, nullptr, nullptr), "read");
  arrived("buffer", target.data(), source);

  // 8 rows of 100 bytes, 256 apart on the device and 128 in the host's memory.
  const size_t at[3] = {0, 0, 0}, region[3] = {100, 8, 1};
  need(clEnqueueWriteBufferRect(cl.queue, one, CL_TRUE, at, at, region, 256, 0, 128, 0, source.data() + 9, 0, nullptr,
                                nullptr),
       "write rect");
  need(clEnqueueCopyBufferRect(cl.queue, one, other, at, at, region, 256, 0, 256, 0, 0, nullptr, nullptr), "copy rect");
  need(clEnqueueReadBufferRect(cl.queue, other, CL_TRUE, at, at, region, 256, 0, 128, 0, target.data(), 0, nullptr,
                               nullptr),
       "read rect");
  bool same = true;
  for (size_t row = 0; row < 8; ++row) same &= memcmp(&target[row * 128], &source[9 + row * 128], 100) == 0;
  say("rect: %s", same ? "arrived" : "DIFFERENT");

  say("past the end: %d",
      clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, kBytes - 1, 2, source.data(), 0, nullptr, nullptr));
  say("past the end: %d", clEnqueueReadBuffer(cl.queue, one, CL_TRUE, kBytes, 1, target.data(), 0, nullptr, nullptr));
  clReleaseMemObject(one);
  clReleaseMemObject(other);
}

void mapped(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(2);
  const cl_mem pinned = cl.buffer(2 * kBytes, CL_MEM_ALLOC_HOST_PTR), one = cl.buffer(kBytes);
  cl_int code = 0;
  const auto map = [&](size_t offset) {
    void* const at = clEnqueueMapBuffer(cl.queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, offset, kBytes, 0,
                                        nullptr, nullptr, &code);
    need(code, "map");
    return static_cast<unsigned char*>(at);
  };
  unsigned char* const first = map(0);
  unsigned char* const again = map(0);
  unsigned char* const second = map(kBytes);
  std::copy(source.begin(), source.end(), first);
  need(clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, 0, kBytes, first, 0, nullptr, nullptr), "write");
  need(clEnqueueUnmapMemObject(cl.queue, pinned, again, 0, nullptr, nullptr), "unmap");
  // It is mapped still, from the other call.
  need(clEnqueueReadBuffer(cl.queue, one, CL_TRUE, 100, kBytes - 100, second + 100, 0, nullptr, nullptr), "read");
  need(clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, 0, kBytes, first, 0, nullptr, nullptr), "write");
  arrived("mapped", second + 100, std::vector<unsigned char>(source.begin() + 100, source.end()), kBytes - 100);
  for (void* const each : {first, second})
    need(clEnqueueUnmapMemObject(cl.queue, pinned, each, 0, nullptr, nullptr), "unmap");
  clFinish(cl.queue);
  clReleaseMemObject(one);
  clReleaseMemObject(pinned);
}

void images(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(3);
  std::vector<unsigned char> target(kBytes);
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description{};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = 100;
  description.image_height = 40;
  cl_int code = 0;
  cl_mem each[2];
  for (cl_mem& one : each) {
    one = counted(clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &description, nullptr, &code));
    need(code, "clCreateImage");
  }
  const cl_mem buffer = cl.buffer(kBytes);
  const size_t at[3] = {0, 0, 0}, region[3] = {100, 40, 1};
  const auto [one, other] = each;
  need(clEnqueueWriteImage(cl.queue, one, CL_TRUE, at, region, 0, 0, source.data(), 0, nullptr, nullptr), "write");
  need(clEnqueueCopyImage(cl.queue, one, other, at, at, region, 0, nullptr, nullptr), "copy");
  need(clEnqueueCopyImageToBuffer(cl.queue, other, buffer, at, region, 0, 0, nullptr, nullptr), "to buffer");
  need(clEnqueueCopyBufferToImage(cl.queue, buffer, one, 0, at, region, 0, nullptr, nullptr), "to image");
  need(clEnqueueReadImage(cl.queue, one, CL_TRUE, at, region, 0, 0, target.data(), 0, nullptr, nullptr), "read");
  arrived("image", target.data(), source, 16000);
  for (const cl_mem memory : {one, other, buffer}) clReleaseMemObject(memory);
}

// Timed by their events, where the queue has them profiled and the copy has ended when the program lets go.
void asynchronous(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(4);
  std::vector<unsigned char> target(kBytes);
  const cl_command_queue profiled = cl.make_queue(CL_QUEUE_PROFILING_ENABLE);
  const cl_mem one = cl.buffer(kBytes);
  for (const cl_command_queue queue : {cl.queue, profiled}) {
    cl_event written, read;
    need(clEnqueueWriteBuffer(queue, one, CL_FALSE, 0, kBytes, source.data(), 0, nullptr, &written), "write");
    need(clEnqueueReadBuffer(queue, one, CL_FALSE, 0, kBytes, target.data(), 1, &written, &read), "read");
    clWaitForEvents(1, &read);
    arrived("later", target.data(), source);
    clReleaseEvent(written);
    clReleaseEvent(read);
  }
  need(clEnqueueWriteBuffer(profiled, one, CL_FALSE, 0, 1000, source.data(), 0, nullptr, nullptr), "without an event");
  const cl_event gate = cl.gate();
  cl_event late;
  need(clEnqueueWriteBuffer(profiled, one, CL_FALSE, 0, 2000, source.data(), 1, &gate, &late), "late");
  clReleaseEvent(late);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(profiled);
  clReleaseEvent(gate);
  clReleaseCommandQueue(profiled);
  clReleaseMemObject(one);
}

// A site that copies little at a time is named.
void tiny(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(6);
  const cl_mem one = cl.buffer(kBytes);
  for (size_t i = 0; i < 1000; ++i)
    need(clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, i, 16, source.data(), 0, nullptr, nullptr), "write");
  clReleaseMemObject(one);
}

// Asynchronous copies that are waited for one by one, and data that comes back as it was sent.
void one_by_one(const Setup& cl) {
  const size_t bytes = size_t{1} << 20;
  std::vector<unsigned char> host(bytes, 7);
  const cl_mem one = cl.buffer(bytes);
  for (int i = 0; i < 20; ++i) {
    need(clEnqueueReadBuffer(cl.queue, one, CL_FALSE, 0, 100, host.data(), 0, nullptr, nullptr), "read");
    clFinish(cl.queue);
  }
  for (int i = 0; i < 3; ++i) {
    need(clEnqueueWriteBuffer(cl.queue, one, CL_TRUE, 0, bytes, host.data(), 0, nullptr, nullptr), "write");
    need(clEnqueueReadBuffer(cl.queue, one, CL_TRUE, 0, bytes, host.data(), 0, nullptr, nullptr), "read back");
  }
  clReleaseMemObject(one);
}

void shared(const Setup& cl) {
  const std::vector<unsigned char> source = pattern(5);
  std::vector<unsigned char> target(kBytes);
  void* const one = counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, kBytes, 0));
  void* const other = counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, kBytes, 0));
  need(clEnqueueSVMMemcpy(cl.queue, CL_TRUE, one, source.data(), kBytes, 0, nullptr, nullptr), "to");
  need(clEnqueueSVMMemcpy(cl.queue, CL_TRUE, other, one, kBytes, 0, nullptr, nullptr), "between");
  need(clEnqueueSVMMemcpy(cl.queue, CL_TRUE, target.data(), other, kBytes, 0, nullptr, nullptr), "from");
  arrived("shared", target.data(), source);
  const cl_mem buffer = cl.buffer(kBytes);
  need(clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 0, 3000, one, 0, nullptr, nullptr), "into shared memory");
  clReleaseMemObject(buffer);
  clSVMFree(cl.context, one);
  clSVMFree(cl.context, other);
}

// Maps and their unmaps: for reading, for writing, for writing anew; fills; objects made of the host's bytes. And what
// the driver refuses of each.
void without_copy_commands(const Setup& cl) {
  std::vector<unsigned char> source = pattern(9);
  cl_int code = 0;
  const cl_mem one =
      counted(clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kBytes, source.data(), &code));
  need(code, "a buffer of the host's bytes");
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description{};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = 64;
  description.image_height = 32;
  const cl_mem image = counted(
      clCreateImage(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &description, source.data(), &code));
  need(code, "an image of the host's bytes");
  say("no bytes at all: %s", clCreateBuffer(cl.context, CL_MEM_COPY_HOST_PTR, 0, source.data(), &code) ? "made" : "no");

  const auto map = [&](cl_map_flags flags, size_t offset, size_t bytes) {
    return clEnqueueMapBuffer(cl.queue, one, CL_TRUE, flags, offset, bytes, 0, nullptr, nullptr, &code);
  };
  void* mapped = map(CL_MAP_READ, 0, kBytes);
  arrived("mapped to be read", static_cast<unsigned char*>(mapped), source);
  need(clEnqueueUnmapMemObject(cl.queue, one, mapped, 0, nullptr, nullptr), "unmap");
  mapped = map(CL_MAP_WRITE_INVALIDATE_REGION, 0, 1000);
  memcpy(mapped, source.data() + 1, 1000);
  say("unmapped after no event: %d", clEnqueueUnmapMemObject(cl.queue, one, mapped, 1, nullptr, nullptr));
  need(clEnqueueUnmapMemObject(cl.queue, one, mapped, 0, nullptr, nullptr), "unmap");
  say("mapped past the end: %s", map(CL_MAP_READ, kBytes - 1, 2) ? "mapped" : "no");
  say("mapped anew past the end: %s", map(CL_MAP_WRITE_INVALIDATE_REGION, kBytes - 1, 2) ? "mapped" : "no");
  const size_t origin[3] = {}, region[3] = {64, 32, 1};
  size_t row = 0;
  mapped = clEnqueueMapImage(cl.queue, image, CL_TRUE, CL_MAP_READ, origin, region, &row, nullptr, 0, nullptr, nullptr,
                             &code);
  arrived("mapped image", static_cast<unsigned char*>(mapped), source, 64 * 4 * 32);
  need(clEnqueueUnmapMemObject(cl.queue, image, mapped, 0, nullptr, nullptr), "unmap");

  const cl_uint word = 7, color[4] = {1, 2, 3, 4};
  need(clEnqueueFillBuffer(cl.queue, one, &word, sizeof word, 0, 4000, 0, nullptr, nullptr), "fill");
  need(clEnqueueFillImage(cl.queue, image, color, origin, region, 0, nullptr, nullptr), "fill");
  say("filled past the end: %d",
      clEnqueueFillBuffer(cl.queue, one, &word, sizeof word, kBytes, 4, 0, nullptr, nullptr));
  void* const shared = counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, kBytes, 0));
  need(clEnqueueSVMMemFill(cl.queue, shared, &word, sizeof word, 2000, 0, nullptr, nullptr), "fill");
  need(clEnqueueSVMMap(cl.queue, CL_TRUE, CL_MAP_READ, shared, 500, 0, nullptr, nullptr), "map");
  need(clEnqueueSVMUnmap(cl.queue, shared, 0, nullptr, nullptr), "unmap");
  need(clFinish(cl.queue), "clFinish");
  clSVMFree(cl.context, shared);
  clReleaseMemObject(image);
  clReleaseMemObject(one);
}

}  // namespace

int main() {
  Setup cl;
  buffers(cl);
  mapped(cl);
  images(cl);
  asynchronous(cl);
  shared(cl);
  without_copy_commands(cl);
  tiny(cl);
  one_by_one(cl);
  cl.release();
  // Buffers, rect, image, shared: those that wait are timed.
  const size_t image = 64 * 4 * 32, made = kBytes + image;
  const size_t back_and_forth = size_t{3} << 20, written = 2 * kBytes + 800 + 16000 + 16000 + back_and_forth + made;
  const size_t read = 2 * kBytes + 800 + 16000 + back_and_forth;
  say("copied: host to device, pageable, waits, 1009, %zu, 2, %zu", written, written);
  say("tiny copies: host to device, clEnqueueWriteBuffer, 1000, 16000, tiny");
  say("copied: device to host, pageable, waits, 7, %zu, 1, %zu", read, read);
  say("copied: host to device, pinned, waits, 2, %zu, 1, %zu", 2 * kBytes, 2 * kBytes);
  const size_t shown = 4 * kBytes + image + 500, to_mapped = kBytes - 100 + 3000 + shown;
  say("copied: device to host, pinned, waits, 8, %zu, 1, %zu", to_mapped, to_mapped);
  say("copied: host to device, pinned, goes on, 4, %zu, 1, 0", 3 * kBytes + 1000);
  say("copied: fill, -, goes on, 3, %zu, 1, 0", 4000 + image + 2000);
  say("copied: host to device, pageable, goes on, 4, %zu, 0, %zu", 2 * kBytes + 3000, kBytes);
  say("copied: device to host, pageable, goes on, 22, %zu, 0, %zu", 2 * kBytes + 2000, kBytes);
  say("waited for one by one: one_by_one, clEnqueueReadBuffer, 20");
  say("came back unchanged: one_by_one, clEnqueueReadBuffer, 3");
  say("copied: device to device, -, goes on, 5, %zu, 0, 0", kBytes + 800 + 3 * 16000);
  say("copied: device to device, -, waits, 1, %zu, 0, %zu", kBytes, kBytes);
  return finish();
}
