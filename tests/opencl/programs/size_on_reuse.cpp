// A recycled buffer has exactly the size that was asked for: in its query and in every bounds check.
// harness: recycles
#include "observe.hpp"

static void show_bounds(const Setup& cl, size_t bytes) {
  cl_mem buffer = cl.buffer(bytes);
  std::vector<char> host(bytes + 64);
  unsigned char pattern = 7;
  cl_int code = 0;
  say("size %zu: CL_MEM_SIZE %zu", bytes, size_of(buffer));
  say("  write whole %d", clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, bytes, host.data(), 0, nullptr, nullptr));
  say("  write past end %d",
      clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, bytes + 1, host.data(), 0, nullptr, nullptr));
  say("  write at end %d", clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, bytes, 1, host.data(), 0, nullptr, nullptr));
  say("  read past end %d", clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 1, bytes, host.data(), 0, nullptr, nullptr));
  say("  fill past end %d", clEnqueueFillBuffer(cl.queue, buffer, &pattern, 1, 0, bytes + 1, 0, nullptr, nullptr));
  say("  fill whole %d", clEnqueueFillBuffer(cl.queue, buffer, &pattern, 1, 0, bytes, 0, nullptr, nullptr));
  void* mapped = clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, CL_MAP_READ, 0, bytes + 1, 0, nullptr, nullptr, &code);
  say("  map past end %d %s", code, mapped ? "mapped" : "null");
  cl_mem part = sub_buffer(buffer, 0, bytes + 1, 0, &code);
  say("  sub-buffer past end %d %s", code, part ? "made" : "null");
  cl_mem other = cl.buffer(bytes + 1);
  say("  copy from larger %d", clEnqueueCopyBuffer(cl.queue, other, buffer, 0, 0, bytes + 1, 0, nullptr, nullptr));
  say("  copy fitting %d", clEnqueueCopyBuffer(cl.queue, buffer, other, 0, 0, bytes, 0, nullptr, nullptr));
  clFinish(cl.queue);
  clReleaseMemObject(other);
  clReleaseMemObject(buffer);
}

static void show_queries(const Setup& cl, size_t bytes) {
  cl_mem buffer = cl.buffer(bytes);
  size_t needed = 0;
  char small = 0;
  cl_int code = clGetMemObjectInfo(buffer, CL_MEM_SIZE, 0, nullptr, &needed);
  say("query of the query's size: %d, %zu", code, needed);
  say("query into too little: %d", clGetMemObjectInfo(buffer, CL_MEM_SIZE, 1, &small, nullptr));
  say("query of nothing: %d", clGetMemObjectInfo(buffer, 0x1, sizeof needed, &needed, nullptr));
  say("type 0x%x flags 0x%llx host pointer %s context %s associated %s offset %zu maps %u references %u svm %u",
      memory_info<cl_mem_object_type>(buffer, CL_MEM_TYPE),
      static_cast<unsigned long long>(memory_info<cl_mem_flags>(buffer, CL_MEM_FLAGS)),
      memory_info<void*>(buffer, CL_MEM_HOST_PTR) ? "set" : "null",
      memory_info<cl_context>(buffer, CL_MEM_CONTEXT) == cl.context ? "ours" : "other",
      memory_info<cl_mem>(buffer, CL_MEM_ASSOCIATED_MEMOBJECT) ? "set" : "null",
      memory_info<size_t>(buffer, CL_MEM_OFFSET), map_count(buffer), references(buffer),
      memory_info<cl_bool>(buffer, CL_MEM_USES_SVM_POINTER));
  clReleaseMemObject(buffer);
}

int main() {
  Setup cl;
  const size_t sizes[] = {1, 3, 4, 100, 128, 511, 512, 513, 4095, 4096, 4097, 65536, 65537, 1 << 20, (1 << 20) - 4};
  for (int round = 0; round < 3; ++round) {
    for (size_t bytes : sizes) show_bounds(cl, bytes);
    for (size_t bytes : sizes) show_queries(cl, bytes);
  }
  cl.release();
  return finish();
}
