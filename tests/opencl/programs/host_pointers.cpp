// USE_HOST_PTR, COPY_HOST_PTR and ALLOC_HOST_PTR keep their contents and pointers next to a pool of dirty buffers.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 8192;

static void dirty(const Setup& cl, cl_mem_flags flags) {
  cl_mem buffers[4];
  for (cl_mem& buffer : buffers) put(cl.queue, buffer = cl.buffer(kBytes, flags), kBytes, 0xdead);
  for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
}

static void use(const Setup& cl, uint32_t* host, uint32_t word) {
  std::fill(host, host + kBytes / 4, word);
  cl_mem buffer = cl.buffer(kBytes, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, host);
  cl_int code = 0;
  say("use: host pointer %s, %s, count %u", memory_info<void*>(buffer, CL_MEM_HOST_PTR) == host ? "ours" : "other",
      contents(cl.queue, buffer, kBytes).c_str(), references(buffer));
  void* mapped =
      clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 128, 256, 0, nullptr, nullptr, &code);
  say("mapped %d at offset %td", code, static_cast<char*>(mapped) - reinterpret_cast<char*>(host));
  static_cast<uint32_t*>(mapped)[0] = word + 1;
  clEnqueueUnmapMemObject(cl.queue, buffer, mapped, 0, nullptr, nullptr);
  clFinish(cl.queue);
  say("after unmap %s", contents(cl.queue, buffer, kBytes).c_str());
  clReleaseMemObject(buffer);
  say("host keeps %u", host[32]);
}

static void copy(const Setup& cl, cl_mem_flags more, uint32_t word) {
  std::vector<uint32_t> host(kBytes / 4, word);
  cl_mem buffer = cl.buffer(kBytes, CL_MEM_COPY_HOST_PTR | more, host.data());
  std::fill(host.begin(), host.end(), 0);
  say("copy 0x%llx: host pointer %s, %s", static_cast<unsigned long long>(more),
      memory_info<void*>(buffer, CL_MEM_HOST_PTR) ? "set" : "null", contents(cl.queue, buffer, kBytes).c_str());
  clReleaseMemObject(buffer);
}

static void alloc(const Setup& cl, uint32_t word) {
  cl_mem buffer = cl.buffer(kBytes, CL_MEM_ALLOC_HOST_PTR);
  cl_int code = 0;
  auto* mapped = static_cast<uint32_t*>(
      clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, kBytes, 0, nullptr, nullptr, &code));
  std::fill(mapped, mapped + kBytes / 4, word);
  clEnqueueUnmapMemObject(cl.queue, buffer, mapped, 0, nullptr, nullptr);
  say("alloc: map %d, %s", code, contents(cl.queue, buffer, kBytes).c_str());
  auto* again = clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, CL_MAP_READ, 0, kBytes, 0, nullptr, nullptr, &code);
  say("second map at the same place: %s", again == mapped ? "yes" : "no");
  clEnqueueUnmapMemObject(cl.queue, buffer, again, 0, nullptr, nullptr);
  clFinish(cl.queue);
  clReleaseMemObject(buffer);
}

// Non-blocking transfers: the data is there when *their* event says so.
static void events(const Setup& cl, uint32_t word) {
  cl_mem buffer = cl.buffer(kBytes, CL_MEM_ALLOC_HOST_PTR);
  std::vector<uint32_t> from(kBytes / 4, word), to(kBytes / 4, 0);
  cl_event gate = cl.gate(), written = nullptr, read = nullptr;
  clEnqueueWriteBuffer(cl.queue, buffer, CL_FALSE, 0, kBytes, from.data(), 1, &gate, &written);
  clEnqueueReadBuffer(cl.queue, buffer, CL_FALSE, 0, kBytes, to.data(), 1, &written, &read);
  clReleaseMemObject(buffer);
  say("before the gate: %s", describe(to).c_str());
  clSetUserEventStatus(gate, CL_COMPLETE);
  clWaitForEvents(1, &read);
  say("when the read's event is complete: %s", describe(to).c_str());
  for (cl_event event : {gate, written, read}) clReleaseEvent(event);
}

int main() {
  Setup cl;
  auto* host = static_cast<uint32_t*>(aligned_alloc(4096, kBytes));
  for (uint32_t round = 0; round < 4; ++round) {
    for (cl_mem_flags flags : {CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR})
      dirty(cl, flags);
    use(cl, host, 10 + round);
    copy(cl, 0, 20 + round);
    copy(cl, CL_MEM_READ_WRITE, 30 + round);
    copy(cl, CL_MEM_READ_ONLY, 40 + round);
    copy(cl, CL_MEM_ALLOC_HOST_PTR, 50 + round);
    alloc(cl, 60 + round);
    events(cl, 70 + round);
  }
  free(host);
  cl.release();
  return finish();
}
