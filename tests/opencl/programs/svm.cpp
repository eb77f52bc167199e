// Shared virtual memory: allocation, use by kernels and copies, both frees, the callback of clEnqueueSVMFree,
// and frees while commands are pending. Much of it in turn leaves the pool room for buffers.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;
constexpr size_t kWords = kBytes / 4;
static std::atomic<int> freed{0};
static std::atomic<bool> gate_open{false};

static void CL_CALLBACK free_them(cl_command_queue, cl_uint count, void** pointers, void* data) {
  for (cl_uint i = 0; i < count; ++i) clSVMFree(static_cast<cl_context>(data), pointers[i]);
  freed += static_cast<int>(count) + (gate_open ? 100 : 0);
}

static uint32_t* allocate(const Setup& cl, cl_svm_mem_flags flags) {
  auto* pointer = static_cast<uint32_t*>(counted(clSVMAlloc(cl.context, flags, kBytes, 0)));
  say("allocate 0x%llx: %s", static_cast<unsigned long long>(flags), pointer ? "made" : "null");
  return pointer;
}

static void much_in_turn(const Setup& cl) {
  int made = 0;
  for (int i = 0; i < 200; ++i) {
    void* const pointer = counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, size_t{512} << 20, 0));
    made += pointer != nullptr;
    clSVMFree(cl.context, pointer);
  }
  say("much: %d", made);
  for (int i = 0; i < 5; ++i) {
    cl_mem buffer = cl.buffer(kBytes);
    put(cl.queue, buffer, kBytes, 1);
    clReleaseMemObject(buffer);
  }
}

int main() {
  Setup cl;
  cl_device_svm_capabilities capabilities = 0;
  clGetDeviceInfo(cl.device, CL_DEVICE_SVM_CAPABILITIES, sizeof capabilities, &capabilities, nullptr);
  say("capabilities 0x%llx", static_cast<unsigned long long>(capabilities));
  cl_program program = cl.program();
  cl_kernel add = kernel_of(program, "add");
  for (uint32_t round = 0; round < 3; ++round) {
    uint32_t* coarse = allocate(cl, CL_MEM_READ_WRITE);
    uint32_t* fine = allocate(cl, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER);
    if (!coarse) break;
    uint32_t pattern = 10 + round, amount = 5;
    say("fill %d", clEnqueueSVMMemFill(cl.queue, coarse, &pattern, 4, kBytes, 0, nullptr, nullptr));
    say("set argument %d %d", clSetKernelArgSVMPointer(add, 0, coarse), clSetKernelArg(add, 1, 4, &amount));
    size_t global = kWords;
    say("kernel %d", clEnqueueNDRangeKernel(cl.queue, add, 1, nullptr, &global, nullptr, 0, nullptr, nullptr));
    say("map %d", clEnqueueSVMMap(cl.queue, CL_TRUE, CL_MAP_READ, coarse, kBytes, 0, nullptr, nullptr));
    say("contents %s", describe(std::vector<uint32_t>(coarse, coarse + kWords)).c_str());
    say("unmap %d", clEnqueueSVMUnmap(cl.queue, coarse, 0, nullptr, nullptr));
    if (fine) {
      say("copy %d", clEnqueueSVMMemcpy(cl.queue, CL_TRUE, fine, coarse, kBytes, 0, nullptr, nullptr));
      say("fine %s", describe(std::vector<uint32_t>(fine, fine + kWords)).c_str());
    }
    // A cl_mem over the pointer.
    cl_int code = 0;
    cl_mem over = counted(clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, kBytes, coarse, &code));
    say("buffer over it: %d", code);
    if (over) {
      say("uses svm %u, %s", memory_info<cl_bool>(over, CL_MEM_USES_SVM_POINTER),
          contents(cl.queue, over, kBytes).c_str());
      clReleaseMemObject(over);
    }
    clFinish(cl.queue);
    clSVMFree(cl.context, fine);
    clSVMFree(cl.context, nullptr);
    // Freed in queue order, after the copy that waits.
    uint32_t* source = coarse;
    std::vector<uint32_t> target(kWords, 0);
    uint32_t* copy = allocate(cl, CL_MEM_READ_WRITE);
    cl_event gate = cl.gate();
    void* both[] = {source, copy};
    gate_open = false;
    freed = 0;
    clEnqueueSVMMemcpy(cl.queue, CL_FALSE, target.data(), source, kBytes, 1, &gate, nullptr);
    say("enqueue free %d", clEnqueueSVMFree(cl.queue, 2, both, free_them, cl.context, 0, nullptr, nullptr));
    uint32_t* others[3];
    for (uint32_t*& other : others) {
      other = allocate(cl, CL_MEM_READ_WRITE);
      std::fill(other, other + kWords, 66);
    }
    say("freed before the gate %d", freed.load());
    gate_open = true;
    clSetUserEventStatus(gate, CL_COMPLETE);
    clFinish(cl.queue);
    say("copied %s, freed %d", describe(target).c_str(), eventually([] { return freed > 0; }) ? freed.load() : 0);
    for (uint32_t* other : others) say("other %s", describe(std::vector<uint32_t>(other, other + kWords)).c_str());
    void* three[] = {others[0], others[1], others[2]};
    say("enqueue default free %d", clEnqueueSVMFree(cl.queue, 3, three, nullptr, nullptr, 0, nullptr, nullptr));
    clFinish(cl.queue);
    clReleaseEvent(gate);
  }
  say("zero bytes: %s", counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, 0, 0)) ? "made" : "null");
  say("alignment 3: %s", counted(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, 64, 3)) ? "made" : "null");
  much_in_turn(cl);
  clReleaseKernel(add);
  clReleaseProgram(program);
  cl.release();
  return finish();
}
