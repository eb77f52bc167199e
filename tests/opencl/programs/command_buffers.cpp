// Command buffers keep what they recorded: the program releases its buffers after recording, others are made and
// written meanwhile, and the recording is executed twice. Nothing of a context that has one is recycled.
// harness: recycles-nothing
#include "observe.hpp"

constexpr size_t kBytes = 4096;
constexpr size_t kWords = kBytes / 4;

struct Functions {
  clCreateCommandBufferKHR_fn create;
  clFinalizeCommandBufferKHR_fn finalize;
  clReleaseCommandBufferKHR_fn release;
  clEnqueueCommandBufferKHR_fn enqueue;
  clCommandCopyBufferKHR_fn copy;
  clCommandFillBufferKHR_fn fill;
  clCommandNDRangeKernelKHR_fn kernel;

  explicit Functions(cl_platform_id platform) {
    auto find = [platform](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          clGetExtensionFunctionAddressForPlatform(platform, name));
      say("%s %s", name, function ? "found" : "null");
    };
    find(create, "clCreateCommandBufferKHR");
    find(finalize, "clFinalizeCommandBufferKHR");
    find(release, "clReleaseCommandBufferKHR");
    find(enqueue, "clEnqueueCommandBufferKHR");
    find(copy, "clCommandCopyBufferKHR");
    find(fill, "clCommandFillBufferKHR");
    find(kernel, "clCommandNDRangeKernelKHR");
  }
  bool complete() const { return create && finalize && release && enqueue && copy && fill && kernel; }
};

int main() {
  Setup cl;
  Functions f(cl.platform);
  if (!f.complete()) return finish();
  cl_program program = cl.program();
  cl_command_queue side = cl.make_queue();
  for (uint32_t round = 0; round < 3; ++round) {
    cl_kernel add = kernel_of(program, "add");
    cl_mem source = cl.buffer(kBytes), middle = cl.buffer(kBytes), target = cl.buffer(kBytes);
    put(side, source, kBytes, 5 + round);
    cl_int code = 0;
    cl_command_buffer_khr recorded = f.create(1, &cl.queue, nullptr, &code);
    say("create %d", code);
    uint32_t amount = 100;
    size_t global = kWords;
    cl_sync_point_khr first = 0, second = 0;
    say("copy %d", f.copy(recorded, nullptr, source, middle, 0, 0, kBytes, 0, nullptr, &first, nullptr));
    clSetKernelArg(add, 0, sizeof middle, &middle);
    clSetKernelArg(add, 1, sizeof amount, &amount);
    say("kernel %d",
        f.kernel(recorded, nullptr, nullptr, add, 1, nullptr, &global, nullptr, 1, &first, &second, nullptr));
    say("copy %d", f.copy(recorded, nullptr, middle, target, 0, 0, kBytes, 1, &second, nullptr, nullptr));
    say("finalize %d", f.finalize(recorded));
    say("released %d", clReleaseMemObject(middle));
    cl_mem others[4];
    for (cl_mem& other : others) put(side, other = cl.buffer(kBytes), kBytes, 900);
    for (int execution = 0; execution < 2; ++execution) {
      put(side, source, kBytes, 10 * (execution + 1) + round);
      cl_event done = nullptr;
      say("enqueue %d", f.enqueue(0, nullptr, recorded, 0, nullptr, &done));
      say("wait %d", clWaitForEvents(1, &done));
      clFinish(cl.queue);
      clReleaseEvent(done);
      say("target %s", contents(side, target, kBytes).c_str());
      for (cl_mem other : others) say("other %s", contents(side, other, kBytes).c_str());
      for (cl_mem& other : others) {
        clReleaseMemObject(other);
        put(side, other = cl.buffer(kBytes), kBytes, 901 + execution);
      }
    }
    say("release recording %d", f.release(recorded));
    for (cl_mem other : others) clReleaseMemObject(other);
    clReleaseMemObject(source);
    clReleaseMemObject(target);
    clReleaseKernel(add);
  }
  clReleaseCommandQueue(side);
  clReleaseProgram(program);
  cl.release();
  return finish();
}
