// Kernel arguments are uses: set long before, overwritten after the enqueue, copied by clCloneKernel, sub-buffers
// whose parent was released, NULL, and plain integers that happen to equal a handle.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 8192;
constexpr size_t kWords = kBytes / 4;

struct Others {
  std::vector<cl_mem> made;
  Others(const Setup& cl, cl_command_queue side, size_t bytes = kBytes) {
    for (int i = 0; i < 3; ++i) {
      made.push_back(cl.buffer(bytes));
      put(side, made.back(), bytes, 70 + i);
    }
  }
  void check(cl_command_queue side) {
    for (cl_mem memory : made) say("  other %s", contents(side, memory, kBytes).c_str());
    for (cl_mem memory : made) clReleaseMemObject(memory);
  }
};

static cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_event gate) {
  size_t global = kWords;
  return clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &global, nullptr, gate ? 1 : 0, gate ? &gate : nullptr,
                                nullptr);
}

// add(source) twice with arguments set once; copy(source, witness); then everything of the program's is let go.
static void set_long_before(const Setup& cl, cl_command_queue side, cl_program program) {
  cl_kernel add = kernel_of(program, "add"), copy = kernel_of(program, "copy");
  cl_mem source = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  cl_uint amount = 10;
  put(side, source, kBytes, 1);
  clSetKernelArg(add, 0, sizeof source, &source);
  clSetKernelArg(add, 1, sizeof amount, &amount);
  clSetKernelArg(copy, 0, sizeof source, &source);
  clSetKernelArg(copy, 1, sizeof witness, &witness);
  say("count after arguments %u", references(source));
  need(launch(cl.queue, add, nullptr), "add");
  clFinish(cl.queue);
  cl_event gate = cl.gate();
  need(launch(cl.queue, add, gate), "add");
  need(launch(cl.queue, copy, nullptr), "copy");
  clReleaseMemObject(source);
  clReleaseKernel(add);
  clReleaseKernel(copy);
  Others others(cl, side);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("set long before: %s", contents(side, witness, kBytes).c_str());
  others.check(side);
  clReleaseMemObject(witness);
  clReleaseEvent(gate);
}

static void overwritten(const Setup& cl, cl_command_queue side, cl_program program) {
  cl_kernel copy = kernel_of(program, "copy");
  cl_mem one = cl.buffer(kBytes), two = cl.buffer(kBytes), to_one = cl.buffer(kBytes), to_two = cl.buffer(kBytes);
  put(side, one, kBytes, 1);
  put(side, two, kBytes, 2);
  cl_event gate = cl.gate();
  clSetKernelArg(copy, 0, sizeof one, &one);
  clSetKernelArg(copy, 1, sizeof to_one, &to_one);
  need(launch(cl.queue, copy, gate), "copy");
  clSetKernelArg(copy, 0, sizeof two, &two);
  clSetKernelArg(copy, 1, sizeof to_two, &to_two);
  need(launch(cl.queue, copy, gate), "copy");
  clReleaseMemObject(one);
  clReleaseMemObject(two);
  Others others(cl, side);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("overwritten: %s, %s", contents(side, to_one, kBytes).c_str(), contents(side, to_two, kBytes).c_str());
  others.check(side);
  clReleaseMemObject(to_one);
  clReleaseMemObject(to_two);
  clReleaseKernel(copy);
  clReleaseEvent(gate);
}

static void cloned(const Setup& cl, cl_command_queue side, cl_program program) {
  cl_kernel copy = kernel_of(program, "copy");
  cl_mem source = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  put(side, source, kBytes, 3);
  clSetKernelArg(copy, 0, sizeof source, &source);
  clSetKernelArg(copy, 1, sizeof witness, &witness);
  cl_int code = 0;
  cl_kernel clone = clCloneKernel(copy, &code);
  say("clone: %d %s", code, clone ? "made" : "null");
  clReleaseKernel(copy);
  if (clone) {
    cl_event gate = cl.gate();
    need(launch(cl.queue, clone, gate), "clone");
    clReleaseMemObject(source);
    Others others(cl, side);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clFinish(cl.queue);
    say("cloned: %s", contents(side, witness, kBytes).c_str());
    others.check(side);
    clReleaseKernel(clone);
    clReleaseEvent(gate);
  } else {
    clReleaseMemObject(source);
  }
  clReleaseMemObject(witness);
}

static void part_of_a_released_parent(const Setup& cl, cl_command_queue side, cl_program program) {
  cl_kernel copy = kernel_of(program, "copy");
  cl_mem parent = cl.buffer(2 * kBytes), witness = cl.buffer(kBytes);
  put(side, parent, 2 * kBytes, 4);
  cl_mem part = sub_buffer(parent, kBytes, kBytes);
  clSetKernelArg(copy, 0, sizeof part, &part);
  clSetKernelArg(copy, 1, sizeof witness, &witness);
  cl_event gate = cl.gate();
  need(launch(cl.queue, copy, gate), "copy");
  clReleaseMemObject(parent);
  clReleaseMemObject(part);
  Others others(cl, side, 2 * kBytes);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("part: %s", contents(side, witness, kBytes).c_str());
  others.check(side);
  clReleaseMemObject(witness);
  clReleaseKernel(copy);
  clReleaseEvent(gate);
}

static void not_handles(const Setup& cl, cl_command_queue side, cl_program program) {
  cl_kernel store = kernel_of(program, "store"), present = kernel_of(program, "present");
  cl_mem look_alike = cl.buffer(kBytes), target = cl.buffer(kBytes);
  cl_ulong bits = reinterpret_cast<cl_ulong>(look_alike);
  clSetKernelArg(store, 0, sizeof target, &target);
  say("integer equal to a handle: %d", clSetKernelArg(store, 1, sizeof bits, &bits));
  need(launch(cl.queue, store, nullptr), "store");
  clFinish(cl.queue);
  say("stored %s; look-alike count %u", contents(side, target, kBytes).c_str(), references(look_alike));
  clReleaseMemObject(look_alike);
  cl_mem none = nullptr;
  clSetKernelArg(present, 0, sizeof target, &target);
  say("NULL handle: %d", clSetKernelArg(present, 1, sizeof none, &none));
  need(launch(cl.queue, present, nullptr), "present");
  say("present %s", contents(cl.queue, target, kBytes).c_str());
  say("NULL value: %d", clSetKernelArg(present, 1, sizeof none, nullptr));
  need(launch(cl.queue, present, nullptr), "present");
  say("present %s", contents(cl.queue, target, kBytes).c_str());
  say("wrong size: %d", clSetKernelArg(present, 1, 4, &none));
  say("wrong index: %d", clSetKernelArg(present, 9, sizeof none, &none));
  clReleaseMemObject(target);
  clReleaseKernel(store);
  clReleaseKernel(present);
}

int main() {
  Setup cl;
  cl_program program = cl.program();
  cl_command_queue side = cl.make_queue();
  for (int round = 0; round < 3; ++round) {
    set_long_before(cl, side, program);
    overwritten(cl, side, program);
    cloned(cl, side, program);
    part_of_a_released_parent(cl, side, program);
    not_handles(cl, side, program);
  }
  clReleaseCommandQueue(side);
  clReleaseProgram(program);
  cl.release();
  return finish();
}
