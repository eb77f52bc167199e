// The remaining commands on buffers: native kernels, migration, fills, rectangles, with contents checked on recycled
// storage, and their error codes.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;

struct NativeArguments {
  uint32_t* data;
  uint32_t add;
};
static void CL_CALLBACK native(void* raw) {
  auto* arguments = static_cast<NativeArguments*>(raw);
  for (size_t i = 0; i < kBytes / 4; ++i) arguments->data[i] += arguments->add;
}

static void native_kernel(const Setup& cl, cl_command_queue side) {
  cl_mem subject = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  put(side, subject, kBytes, 10);
  cl_event gate = cl.gate();
  NativeArguments arguments{nullptr, 7};
  const void* location = &arguments.data;
  cl_int code =
      clEnqueueNativeKernel(cl.queue, native, &arguments, sizeof arguments, 1, &subject, &location, 1, &gate, nullptr);
  say("native kernel %d", code);
  clEnqueueCopyBuffer(cl.queue, subject, witness, 0, 0, kBytes, 0, nullptr, nullptr);
  clReleaseMemObject(subject);
  cl_mem other = cl.buffer(kBytes);
  put(side, other, kBytes, 11);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("native result %s, other %s", contents(side, witness, kBytes).c_str(), contents(side, other, kBytes).c_str());
  clReleaseMemObject(witness);
  clReleaseMemObject(other);
  clReleaseEvent(gate);
}

static void migrate(const Setup& cl) {
  cl_mem buffers[2] = {cl.buffer(kBytes), cl.buffer(kBytes)};
  put(cl.queue, buffers[0], kBytes, 1);
  put(cl.queue, buffers[1], kBytes, 2);
  say("migrate %d", clEnqueueMigrateMemObjects(cl.queue, 2, buffers, 0, 0, nullptr, nullptr));
  say("migrate to host %d",
      clEnqueueMigrateMemObjects(cl.queue, 2, buffers, CL_MIGRATE_MEM_OBJECT_HOST, 0, nullptr, nullptr));
  say("migrate none %d", clEnqueueMigrateMemObjects(cl.queue, 0, nullptr, 0, 0, nullptr, nullptr));
  say("migrate with bad flags %d", clEnqueueMigrateMemObjects(cl.queue, 2, buffers, 0xff00, 0, nullptr, nullptr));
  clFinish(cl.queue);
  say("%s, %s", contents(cl.queue, buffers[0], kBytes).c_str(), contents(cl.queue, buffers[1], kBytes).c_str());
  clReleaseMemObject(buffers[0]);
  clReleaseMemObject(buffers[1]);
}

static void fills(const Setup& cl) {
  cl_mem buffer = cl.buffer(kBytes);
  uint32_t pattern[4] = {21, 21, 21, 21};
  say("fill 4 %d", clEnqueueFillBuffer(cl.queue, buffer, pattern, 4, 0, kBytes, 0, nullptr, nullptr));
  say("%s", contents(cl.queue, buffer, kBytes).c_str());
  pattern[0] = 22;
  say("fill 16 from 2048 %d", clEnqueueFillBuffer(cl.queue, buffer, pattern, 16, 2048, 2048, 0, nullptr, nullptr));
  say("%s", contents(cl.queue, buffer, kBytes).c_str());
  say("fill 3 %d", clEnqueueFillBuffer(cl.queue, buffer, pattern, 3, 0, kBytes, 0, nullptr, nullptr));
  say("fill uneven %d", clEnqueueFillBuffer(cl.queue, buffer, pattern, 16, 8, 16, 0, nullptr, nullptr));
  say("fill without pattern %d", clEnqueueFillBuffer(cl.queue, buffer, nullptr, 4, 0, 4, 0, nullptr, nullptr));
  clReleaseMemObject(buffer);
}

static void rectangles(const Setup& cl) {
  cl_mem a = cl.buffer(kBytes), b = cl.buffer(kBytes);
  put(cl.queue, a, kBytes, 30);
  put(cl.queue, b, kBytes, 31);
  size_t origin[3] = {16, 2, 0}, zero[3] = {0, 0, 0}, region[3] = {64, 8, 1};
  say("copy %d", clEnqueueCopyBufferRect(cl.queue, a, b, zero, origin, region, 256, 0, 256, 0, 0, nullptr, nullptr));
  std::vector<uint32_t> row(64);
  size_t line[3] = {256, 1, 1}, third[3] = {0, 3, 0};
  say("read %d", clEnqueueReadBufferRect(cl.queue, b, CL_TRUE, third, zero, line, 256, 0, 256, 0, row.data(), 0,
                                         nullptr, nullptr));
  std::string text;
  for (uint32_t word : row) text += std::to_string(word) + " ";
  say("row: %s", text.c_str());
  std::fill(row.begin(), row.end(), 32);
  say("write %d", clEnqueueWriteBufferRect(cl.queue, b, CL_TRUE, zero, zero, line, 256, 0, 256, 0, row.data(), 0,
                                           nullptr, nullptr));
  say("%s", contents(cl.queue, b, kBytes).c_str());
  size_t outside[3] = {0, 15, 0};
  say("copy outside %d",
      clEnqueueCopyBufferRect(cl.queue, a, b, zero, outside, region, 256, 0, 256, 0, 0, nullptr, nullptr));
  say("copy onto itself %d", clEnqueueCopyBuffer(cl.queue, a, a, 0, 64, 128, 0, nullptr, nullptr));
  say("copy within %d", clEnqueueCopyBuffer(cl.queue, b, b, 0, 2048, 1024, 0, nullptr, nullptr));
  say("%s", contents(cl.queue, b, kBytes).c_str());
  clReleaseMemObject(a);
  clReleaseMemObject(b);
}

int main() {
  Setup cl;
  cl_command_queue side = cl.make_queue();
  for (int round = 0; round < 3; ++round) {
    native_kernel(cl, side);
    migrate(cl);
    fills(cl);
    rectangles(cl);
  }
  clReleaseCommandQueue(side);
  cl.release();
  return finish();
}
