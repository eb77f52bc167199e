// Every combination of flags, valid and not: codes, CL_MEM_FLAGS and what the host may do, fresh and recycled.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;
alignas(128) static char host_memory[kBytes];

static void one(const Setup& cl, cl_mem_flags flags) {
  bool with_host = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
  cl_int code = 1;
  cl_mem buffer = counted(clCreateBuffer(cl.context, flags, kBytes, with_host ? host_memory : nullptr, &code));
  if (!buffer) {
    say("0x%llx: %d", static_cast<unsigned long long>(flags), code);
    return;
  }
  char word[4] = {1, 2, 3, 4};
  cl_int write = clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 4, word, 0, nullptr, nullptr);
  cl_int read = clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 0, 4, word, 0, nullptr, nullptr);
  cl_int map = 1;
  void* mapped = clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, nullptr, nullptr, &map);
  if (mapped) clEnqueueUnmapMemObject(cl.queue, buffer, mapped, 0, nullptr, nullptr);
  clFinish(cl.queue);
  say("0x%llx: %d, flags 0x%llx, write %d, read %d, map %d", static_cast<unsigned long long>(flags), code,
      static_cast<unsigned long long>(memory_info<cl_mem_flags>(buffer, CL_MEM_FLAGS)), write, read, map);
  clReleaseMemObject(buffer);
}

int main() {
  Setup cl;
  // Bits 0-5 (access, host pointers) and 7-9 (host access); bit 6 and those above 9 are not buffer flags here.
  for (int round = 0; round < 2; ++round) {
    for (cl_mem_flags low = 0; low < 64; ++low) {
      for (cl_mem_flags high = 0; high < 8; ++high) one(cl, low | high << 7);
    }
    for (int bit = 0; bit < 64; ++bit) one(cl, cl_mem_flags{1} << bit);
  }
  cl.release();
  return finish();
}
