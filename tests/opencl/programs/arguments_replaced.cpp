// A kernel argument that named a buffer is set again, by every function that sets one; then the buffer is released and
// the kernel runs. Nothing uses the buffer any more, and nothing is to be said of it. A clone keeps what it was made
// with. The extension functions are those of layers/driver.cpp.
// harness: driver-layer
#include "observe.hpp"

constexpr size_t kBytes = 4096, kWords = kBytes / 4;

using SetPointer = cl_int(CL_API_CALL*)(cl_kernel, cl_uint, const void*);
using SetAddress = cl_int(CL_API_CALL*)(cl_kernel, cl_uint, cl_ulong);

static cl_int run(const Setup& cl, cl_kernel kernel) {
  const size_t global = kWords;
  const cl_int code = clEnqueueNDRangeKernel(cl.queue, kernel, 1, nullptr, &global, nullptr, 0, nullptr, nullptr);
  clFinish(cl.queue);
  return code;
}

// Runs `add` on a buffer, replaces that argument through `set`, releases the buffer, and runs it again.
template <class Set>
static void replaced(const Setup& cl, cl_program program, const char* name, Set set) {
  cl_kernel add = kernel_of(program, "add");
  cl_mem buffer = cl.buffer(kBytes);
  auto* words = static_cast<uint32_t*>(counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, kBytes, 0)));
  std::fill(words, words + kWords, 5);
  put(cl.queue, buffer, kBytes, 1);
  const cl_uint amount = 3;
  clSetKernelArg(add, 0, sizeof buffer, &buffer);
  clSetKernelArg(add, 1, sizeof amount, &amount);
  say("%s: first run %d", name, run(cl, add));
  say("  set %d", set(add, words));
  say("  buffer %s", contents(cl.queue, buffer, kBytes).c_str());
  clReleaseMemObject(buffer);
  say("  second run %d", run(cl, add));
  say("  words %s", describe(std::vector<uint32_t>(words, words + kWords)).c_str());
  // Set again to a buffer: the pool's own, perhaps.
  cl_mem other = cl.buffer(kBytes);
  put(cl.queue, other, kBytes, 10);
  clSetKernelArg(add, 0, sizeof other, &other);
  const cl_int code = run(cl, add);
  say("  third run %d, other %s", code, contents(cl.queue, other, kBytes).c_str());
  clSVMFree(cl.context, words);
  clReleaseMemObject(other);
  clReleaseKernel(add);
}

// The original is set again; the clone still uses the first buffer, which lives until the clone has run.
static void replaced_in_the_original(const Setup& cl, cl_program program) {
  cl_kernel add = kernel_of(program, "add");
  cl_mem first = cl.buffer(kBytes), second = cl.buffer(kBytes);
  put(cl.queue, first, kBytes, 1);
  put(cl.queue, second, kBytes, 2);
  const cl_uint amount = 100;
  clSetKernelArg(add, 0, sizeof first, &first);
  clSetKernelArg(add, 1, sizeof amount, &amount);
  cl_int code = 0;
  cl_kernel clone = clCloneKernel(add, &code);
  say("clone: %d", code);
  if (!clone) return;
  clSetKernelArg(add, 0, sizeof second, &second);
  const cl_int clone_ran = run(cl, clone), ran = run(cl, add);
  say("  runs %d %d: %s, %s", clone_ran, ran, contents(cl.queue, first, kBytes).c_str(),
      contents(cl.queue, second, kBytes).c_str());
  clSetKernelArg(clone, 0, sizeof second, &second);
  clReleaseMemObject(first);
  say("  clone set again runs %d: %s", run(cl, clone), contents(cl.queue, second, kBytes).c_str());
  clReleaseMemObject(second);
  clReleaseKernel(clone);
  clReleaseKernel(add);
}

int main() {
  Setup cl;
  cl_program program = cl.program();
  const auto found = [&](const char* name) { return clGetExtensionFunctionAddressForPlatform(cl.platform, name); };
  for (int round = 0; round < 2; ++round) {
    replaced(cl, program, "clSetKernelArgSVMPointer",
             [](cl_kernel kernel, const void* value) { return clSetKernelArgSVMPointer(kernel, 0, value); });
    for (const char* name : {"clSetKernelArgSVMPointerARM", "clSetKernelArgMemPointerINTEL"})
      if (auto set = reinterpret_cast<SetPointer>(found(name)))
        replaced(cl, program, name, [set](cl_kernel kernel, const void* value) { return set(kernel, 0, value); });
    if (auto set = reinterpret_cast<SetAddress>(found("clSetKernelArgDevicePointerEXT")))
      replaced(cl, program, "clSetKernelArgDevicePointerEXT", [set](cl_kernel kernel, const void* value) {
        return set(kernel, 0, reinterpret_cast<cl_ulong>(value));
      });
    replaced_in_the_original(cl, program);
  }
  // From here on nobody can know which arguments were replaced.
  if (auto set = reinterpret_cast<SetPointer>(found("clSetKernelArgOfTomorrow")))
    replaced(cl, program, "a function that nobody knows",
             [set](cl_kernel kernel, const void* value) { return set(kernel, 0, value); });
  clReleaseProgram(program);
  cl.release();
  return finish();
}
