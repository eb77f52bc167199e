// Maps: counts, nesting, regions, contents on both sides, and buffers released while mapped.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 8192;

static uint32_t* map(const Setup& cl, cl_mem buffer, cl_map_flags flags, size_t offset, size_t bytes) {
  cl_int code = 0;
  auto* mapped = static_cast<uint32_t*>(
      clEnqueueMapBuffer(cl.queue, buffer, CL_TRUE, flags, offset, bytes, 0, nullptr, nullptr, &code));
  say("map 0x%llx: %d", static_cast<unsigned long long>(flags), code);
  return mapped;
}

static void ordinary(const Setup& cl) {
  cl_mem buffer = cl.buffer(kBytes);
  put(cl.queue, buffer, kBytes, 1);
  uint32_t* whole = map(cl, buffer, CL_MAP_READ | CL_MAP_WRITE, 0, kBytes);
  say("first word %u, map count %u, references %u", whole[0], map_count(buffer), references(buffer));
  whole[5] = 50;
  uint32_t* part = map(cl, buffer, CL_MAP_READ, 4096, 256);
  say("map count %u, distance %td", map_count(buffer), reinterpret_cast<char*>(part) - reinterpret_cast<char*>(whole));
  say("unmap %d", clEnqueueUnmapMemObject(cl.queue, buffer, part, 0, nullptr, nullptr));
  clFinish(cl.queue);
  say("map count %u", map_count(buffer));
  say("unmap %d", clEnqueueUnmapMemObject(cl.queue, buffer, whole, 0, nullptr, nullptr));
  clFinish(cl.queue);
  say("map count %u, %s", map_count(buffer), contents(cl.queue, buffer, kBytes).c_str());
  int elsewhere = 0;
  say("unmap of no map %d", clEnqueueUnmapMemObject(cl.queue, buffer, &elsewhere, 0, nullptr, nullptr));
  uint32_t* fresh = map(cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, kBytes);
  std::fill(fresh, fresh + kBytes / 4, 9);
  clEnqueueUnmapMemObject(cl.queue, buffer, fresh, 0, nullptr, nullptr);
  say("after invalidate: %s", contents(cl.queue, buffer, kBytes).c_str());
  uint32_t* both = map(cl, buffer, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 64);
  say("read and invalidate: %s", both ? "mapped" : "null");
  if (both) clEnqueueUnmapMemObject(cl.queue, buffer, both, 0, nullptr, nullptr);
  clFinish(cl.queue);
  clReleaseMemObject(buffer);
}

static void released_while_mapped(const Setup& cl, bool gated) {
  cl_mem buffer = cl.buffer(kBytes);
  put(cl.queue, buffer, kBytes, 2);
  uint32_t* mapped = map(cl, buffer, CL_MAP_READ | CL_MAP_WRITE, 0, kBytes);
  clRetainMemObject(buffer);
  clReleaseMemObject(buffer);
  say("mapped: references %u, map count %u", references(buffer), map_count(buffer));
  cl_event gate = cl.gate();
  cl_mem witness = cl.buffer(kBytes);
  cl_command_queue side = cl.make_queue();
  mapped[0] = 3;
  std::fill(mapped, mapped + kBytes / 4, 3);
  clEnqueueUnmapMemObject(cl.queue, buffer, mapped, gated ? 1 : 0, gated ? &gate : nullptr, nullptr);
  clEnqueueCopyBuffer(cl.queue, buffer, witness, 0, 0, kBytes, 0, nullptr, nullptr);
  clReleaseMemObject(buffer);
  cl_mem others[3];
  for (cl_mem& other : others) put(side, other = cl.buffer(kBytes), kBytes, 4);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  say("witness %s", contents(side, witness, kBytes).c_str());
  for (cl_mem other : others) say("other %s, map count %u", contents(side, other, kBytes).c_str(), map_count(other));
  for (cl_mem other : others) clReleaseMemObject(other);
  clReleaseMemObject(witness);
  clReleaseEvent(gate);
  clReleaseCommandQueue(side);
}

// The last release comes while the pointer is still in use; the map ends never.
static void never_unmapped(const Setup& cl) {
  cl_mem buffer = cl.buffer(kBytes);
  uint32_t* mapped = map(cl, buffer, CL_MAP_WRITE, 0, kBytes);
  mapped[0] = 1;
  say("released while mapped %d", clReleaseMemObject(buffer));
  cl_mem others[3];
  for (cl_mem& other : others) {
    put(cl.queue, other = cl.buffer(kBytes), kBytes, 6);
    say("other: map count %u, %s", map_count(other), contents(cl.queue, other, kBytes).c_str());
  }
  for (cl_mem other : others) clReleaseMemObject(other);
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    ordinary(cl);
    released_while_mapped(cl, false);
    released_while_mapped(cl, true);
    never_unmapped(cl);
  }
  cl.release();
  return finish();
}
