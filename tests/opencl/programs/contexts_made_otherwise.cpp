// Contexts from a device type and over sub-devices, retained more than once; queues with properties in them; samplers.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;

static void work(cl_context context, cl_device_id device, const char* name) {
  cl_int code = 0;
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &code);
  say("%s: queue %d", name, code);
  for (uint32_t round = 0; round < 4; ++round) {
    cl_mem buffer = counted(clCreateBuffer(context, CL_MEM_READ_WRITE, kBytes, nullptr, &code));
    put(queue, buffer, kBytes, round);
    say("%s: %d, %s", name, code, contents(queue, buffer, kBytes).c_str());
    clReleaseMemObject(buffer);
  }
  cl_sampler sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &code);
  cl_int retained = clRetainSampler(sampler), released = clReleaseSampler(sampler), last = clReleaseSampler(sampler);
  say("%s: sampler %d %d %d %d", name, code, retained, released, last);
  clReleaseCommandQueue(queue);
}

int main() {
  Setup cl;
  cl_int code = 0;
  cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(cl.platform), 0};
  cl_context typed = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, nullptr, nullptr, &code);
  say("from type %d, count %u", code, references(typed));
  clRetainContext(typed);
  clRetainContext(typed);
  work(typed, cl.device, "typed");
  say("released %d", clReleaseContext(typed));
  say("released %d", clReleaseContext(typed));
  work(typed, cl.device, "typed again");
  // The driver's own thread may hold the last command, and through it the context, a moment longer.
  say("count %s", eventually([&] { return references(typed) == 1; }) ? "1" : "not 1");
  say("released %d", clReleaseContext(typed));
  cl_context none = clCreateContextFromType(properties, CL_DEVICE_TYPE_ACCELERATOR, nullptr, nullptr, &code);
  say("no such type %d %s", code, none ? "made" : "null");
  none = clCreateContext(properties, 0, nullptr, nullptr, nullptr, &code);
  say("no device %d %s", code, none ? "made" : "null");

  cl_device_partition_property by_counts[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_device_id part = nullptr;
  cl_uint parts = 0;
  code = clCreateSubDevices(cl.device, by_counts, 0, nullptr, &parts);
  std::vector<cl_device_id> devices(parts);
  if (code == CL_SUCCESS && parts) {
    need(clCreateSubDevices(cl.device, by_counts, parts, devices.data(), nullptr), "clCreateSubDevices");
    part = devices[0];
    cl_context partial = clCreateContext(nullptr, 1, &part, nullptr, nullptr, &code);
    say("over a sub-device %d", code);
    work(partial, part, "partial");
    clReleaseContext(partial);
    for (cl_device_id device : devices) clReleaseDevice(device);
  }
  cl.release();
  return finish();
}
