// Calls of OpenCL 1.0 and 1.1 that programs still make: tasks, markers, barriers, and properties of old-style queues.
#include "observe.hpp"

constexpr size_t kBytes = 4096;

int main() {
  Setup cl;
  cl_program program = cl.program();
  cl_kernel add = kernel_of(program, "add");
  cl_command_queue side = cl.make_queue();
  for (int round = 0; round < 3; ++round) {
    cl_mem subject = cl.buffer(kBytes), witness = cl.buffer(kBytes);
    put(side, subject, kBytes, 1);
    cl_uint amount = 41;
    cl_event gate = cl.gate(), marker = nullptr;
    clSetKernelArg(add, 0, sizeof subject, &subject);
    clSetKernelArg(add, 1, sizeof amount, &amount);
    say("task %d", clEnqueueTask(cl.queue, add, 1, &gate, nullptr));
    say("barrier %d", clEnqueueBarrier(cl.queue));
    say("copy %d", clEnqueueCopyBuffer(cl.queue, subject, witness, 0, 0, kBytes, 0, nullptr, nullptr));
    say("marker %d", clEnqueueMarker(cl.queue, &marker));
    clReleaseMemObject(subject);
    cl_mem other = cl.buffer(kBytes);
    put(side, other, kBytes, 2);
    clSetUserEventStatus(gate, CL_COMPLETE);
    say("wait for the marker %d", clWaitForEvents(1, &marker));
    say("witness %s, other %s", contents(side, witness, kBytes).c_str(), contents(side, other, kBytes).c_str());
    clReleaseMemObject(witness);
    clReleaseMemObject(other);
    clReleaseEvent(marker);
    clReleaseEvent(gate);
    cl_command_queue queue = cl.make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue_properties now = 0;
    clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof now, &now, nullptr);
    say("properties 0x%llx", static_cast<unsigned long long>(now));
    clReleaseCommandQueue(queue);
  }
  const cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_int code = 0;
  cl_command_queue profiled = clCreateCommandQueueWithProperties(cl.context, cl.device, list, &code);
  say("queue with properties %d", code);
  cl_mem buffer = cl.buffer(kBytes);
  put(profiled, buffer, kBytes, 3);
  say("%s", contents(profiled, buffer, kBytes).c_str());
  clReleaseMemObject(buffer);
  clReleaseCommandQueue(profiled);
  clReleaseCommandQueue(side);
  clReleaseKernel(add);
  clReleaseProgram(program);
  cl.release();
  return finish();
}
