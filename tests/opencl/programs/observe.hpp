// What the conformance programs share. They are ordinary OpenCL programs that know nothing of Cistern: each prints
// every observation as a deterministic line, so that its output can be compared byte for byte between ways of running
// it (run_ways.py). No addresses, no timings, no contents that the specification leaves undefined.
//
// A program's first comment carries what the harness checks in its report:
//   harness: leaks=N        live OpenCL memory objects at exit (0 when absent)
//   harness: recycles       the pool must have served something
//   harness: transfers      what the program copied, line by line, is what the report has
//   harness: stages=R,...   through pinned chunks go as many copies as it says; others do not, for these reasons
//   harness: exit=N         exit code (0 when absent)
//   harness: stderr=REGEX   one line that only a run under Cistern writes; lines in order, nothing else
//   harness: only-shimmed   undefined without Cistern: not run plain; stdout is compared between the shimmed ways
//   harness: only-pooled    undefined without its pool: run neither plain nor with the pool off
//   harness: arguments=...  command line; of several lines each is run
//   harness: order=CASE:WHAT  run with this argument; buffers released under commands are `kept` in their order, or
//                           wait for this reason; or both, with a +
//   harness: driver-layer   layers/driver.cpp is part of the driver
#pragma once
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <algorithm>

#include <atomic>
#include <string>
#include <vector>

inline std::atomic<int> creations{0};  // successful calls that made OpenCL memory, whatever its type

template <class Handle>
Handle counted(Handle memory) {
  if (memory) ++creations;
  return memory;
}

[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
  fflush(stdout);
}

// Set-up calls that have no reason to fail.
inline void need(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  say("set-up failed: %s: %d", what, code);
  exit(90);
}

inline constexpr const char* kKernels = R"(
__kernel void add(__global uint* data, uint amount) { data[get_global_id(0)] += amount; }
__kernel void copy(__global const uint* from, __global uint* to) { to[get_global_id(0)] = from[get_global_id(0)]; }
__kernel void store(__global uint* data, ulong bits) { data[get_global_id(0)] = bits != 0; }
__kernel void present(__global uint* data, __global uint* perhaps) { data[get_global_id(0)] = perhaps ? 2 : 1; }
)";

struct Setup {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;

  explicit Setup(cl_command_queue_properties properties = 0) {
    need(clGetPlatformIDs(1, &platform, nullptr), "clGetPlatformIDs");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
    context = make_context();
    queue = make_queue(properties);
  }
  cl_context make_context() const {
    cl_int code = 0;
    cl_context made = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    need(code, "clCreateContext");
    return made;
  }
  cl_command_queue make_queue(cl_command_queue_properties properties = 0) const {
    cl_int code = 0;
    cl_command_queue made = clCreateCommandQueue(context, device, properties, &code);
    need(code, "clCreateCommandQueue");
    return made;
  }
  cl_mem buffer(size_t bytes, cl_mem_flags flags = CL_MEM_READ_WRITE, void* host = nullptr) const {
    cl_int code = 0;
    cl_mem made = counted(clCreateBuffer(context, flags, bytes, host, &code));
    need(code, "clCreateBuffer");
    return made;
  }
  cl_program program(const char* source = kKernels) const {
    cl_int code = 0;
    cl_program made = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
    need(code, "clCreateProgramWithSource");
    need(clBuildProgram(made, 1, &device, "", nullptr, nullptr), "clBuildProgram");
    return made;
  }
  cl_event gate() const {
    cl_int code = 0;
    cl_event made = clCreateUserEvent(context, &code);
    need(code, "clCreateUserEvent");
    return made;
  }
  void release() {
    if (queue) clReleaseCommandQueue(queue);
    if (context) clReleaseContext(context);
    queue = nullptr;
    context = nullptr;
  }
};

inline cl_kernel kernel_of(cl_program program, const char* name) {
  cl_int code = 0;
  cl_kernel made = clCreateKernel(program, name, &code);
  need(code, "clCreateKernel");
  return made;
}

inline cl_mem sub_buffer(cl_mem parent, size_t origin, size_t bytes, cl_mem_flags flags = 0, cl_int* code = nullptr) {
  cl_buffer_region region{origin, bytes};
  return counted(clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, code));
}

template <class T>
T memory_info(cl_mem memory, cl_mem_info name) {
  T value{};
  cl_int code = clGetMemObjectInfo(memory, name, sizeof value, &value, nullptr);
  if (code != CL_SUCCESS) say("clGetMemObjectInfo(0x%x): %d", name, code);
  return value;
}
inline unsigned references_now(cl_mem memory) { return memory_info<cl_uint>(memory, CL_MEM_REFERENCE_COUNT); }
inline unsigned map_count_now(cl_mem memory) { return memory_info<cl_uint>(memory, CL_MEM_MAP_COUNT); }

// PoCL's own threads hold a buffer, and its maps, a moment longer than the command that a program has waited for: the
// least of several looks is what stays.
template <class Look>
unsigned least_of_looks(Look look, unsigned least_possible) {
  unsigned least = look();
  for (int i = 0; i < 20 && least > least_possible; ++i) {
    usleep(500);
    least = std::min(least, look());
  }
  return least;
}
inline unsigned references(cl_mem memory) {
  return least_of_looks([&] { return references_now(memory); }, 1);
}
inline unsigned map_count(cl_mem memory) {
  return least_of_looks([&] { return map_count_now(memory); }, 0);
}
inline size_t size_of(cl_mem memory) { return memory_info<size_t>(memory, CL_MEM_SIZE); }

inline unsigned references(cl_context context) {
  cl_uint value = 0;
  clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof value, &value, nullptr);
  return value;
}
inline unsigned references(cl_command_queue queue) {
  cl_uint value = 0;
  clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof value, &value, nullptr);
  return value;
}

// Blocking write of one word everywhere.
inline void put(cl_command_queue queue, cl_mem memory, size_t bytes, uint32_t word) {
  std::vector<uint32_t> words(bytes / 4, word);
  need(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, words.size() * 4, words.data(), 0, nullptr, nullptr), "write");
}

// "all 7", or the first word that differs.
inline std::string describe(const std::vector<uint32_t>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] != words[0]) {
      return std::to_string(words[0]) + ", then " + std::to_string(words[i]) + " at word " + std::to_string(i);
    }
  }
  return words.empty() ? "empty" : "all " + std::to_string(words[0]);
}
inline std::string contents(cl_command_queue queue, cl_mem memory, size_t bytes) {
  std::vector<uint32_t> words(bytes / 4);
  cl_int code = clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, words.size() * 4, words.data(), 0, nullptr, nullptr);
  return code == CL_SUCCESS ? describe(words) : "read failed: " + std::to_string(code);
}

// Polls for what another thread is about to do; false after five seconds.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    usleep(1000);
  }
  return condition();
}

// The last line of every program: the harness compares it with the report's allocations.
inline int finish(int code = 0) {
  say("memory objects made: %d", creations.load());
  return code;
}
