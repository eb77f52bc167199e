// Sub-buffers: no nesting, aligned origins, the parent's reference count, the associated object, and a parent that
// was released first and lives on through its sub-buffer.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 16384;

static void show_rules(const Setup& cl) {
  cl_mem parent = cl.buffer(kBytes);
  cl_int code = 0;
  cl_mem part = sub_buffer(parent, 4096, 4096, 0, &code);
  say("sub-buffer %d; parent count %u, own count %u", code, references(parent), references(part));
  say("size %zu offset %zu associated %s type 0x%x flags 0x%llx", size_of(part),
      memory_info<size_t>(part, CL_MEM_OFFSET),
      memory_info<cl_mem>(part, CL_MEM_ASSOCIATED_MEMOBJECT) == parent ? "parent" : "other",
      memory_info<cl_mem_object_type>(part, CL_MEM_TYPE),
      static_cast<unsigned long long>(memory_info<cl_mem_flags>(part, CL_MEM_FLAGS)));
  cl_mem nested = sub_buffer(part, 0, 1024, 0, &code);
  say("nested: %d %s", code, nested ? "made" : "null");
  cl_mem misaligned = sub_buffer(parent, 4, 1024, 0, &code);
  say("misaligned origin: %d %s", code, misaligned ? "made" : "null");
  cl_mem outside = sub_buffer(parent, kBytes, 128, 0, &code);
  say("origin at end: %d %s", code, outside ? "made" : "null");
  cl_mem empty = sub_buffer(parent, 0, 0, 0, &code);
  say("empty region: %d %s", code, empty ? "made" : "null");
  cl_mem wrong_type = counted(clCreateSubBuffer(parent, 0, 0, nullptr, &code));
  say("unknown type: %d %s", code, wrong_type ? "made" : "null");
  cl_mem no_info = counted(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, nullptr, &code));
  say("no region: %d %s", code, no_info ? "made" : "null");
  say("parent count after failures %u", references(parent));
  clRetainMemObject(part);
  say("part retained: own %u, parent %u", references(part), references(parent));
  clReleaseMemObject(part);
  say("part released once: own %u, parent %u", references(part), references(parent));
  clReleaseMemObject(part);
  say("part gone: parent %u", references(parent));
  clReleaseMemObject(parent);
}

static void show_flags(const Setup& cl) {
  cl_mem parent = cl.buffer(kBytes, CL_MEM_READ_ONLY);
  for (cl_mem_flags flags : {cl_mem_flags{0}, cl_mem_flags{CL_MEM_READ_ONLY}, cl_mem_flags{CL_MEM_WRITE_ONLY},
                             cl_mem_flags{CL_MEM_READ_WRITE}, cl_mem_flags{CL_MEM_HOST_NO_ACCESS},
                             cl_mem_flags{CL_MEM_USE_HOST_PTR}, cl_mem_flags{CL_MEM_ALLOC_HOST_PTR}}) {
    cl_int code = 0;
    cl_mem part = sub_buffer(parent, 0, 1024, flags, &code);
    say("flags 0x%llx of a read-only parent: %d", static_cast<unsigned long long>(flags), code);
    if (part) {
      say("  gives 0x%llx", static_cast<unsigned long long>(memory_info<cl_mem_flags>(part, CL_MEM_FLAGS)));
      clReleaseMemObject(part);
    }
  }
  clReleaseMemObject(parent);
}

static void parent_released_first(const Setup& cl) {
  cl_mem parent = cl.buffer(kBytes);
  put(cl.queue, parent, kBytes, 5);
  cl_mem left = sub_buffer(parent, 0, 4096), right = sub_buffer(parent, 8192, 4096);
  say("two parts: parent %u", references(parent));
  say("parent released: %d", clReleaseMemObject(parent));
  // Anything of the same key made now must not be the parent's storage.
  std::vector<cl_mem> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(cl.buffer(kBytes));
    put(cl.queue, others.back(), kBytes, 90 + i);
  }
  say("left %s, right %s", contents(cl.queue, left, 4096).c_str(), contents(cl.queue, right, 4096).c_str());
  cl_mem through = memory_info<cl_mem>(left, CL_MEM_ASSOCIATED_MEMOBJECT);
  say("associated still the parent: %s; its count %u, size %zu", through == parent ? "yes" : "no", references(through),
      size_of(through));
  put(cl.queue, through, kBytes, 6);
  say("parent written through its association: left %s, right %s", contents(cl.queue, left, 4096).c_str(),
      contents(cl.queue, right, 4096).c_str());
  put(cl.queue, left, 4096, 7);
  say("left %s, right %s", contents(cl.queue, left, 4096).c_str(), contents(cl.queue, right, 4096).c_str());
  cl_int code = clReleaseMemObject(left);
  say("left released %d; parent %u", code, references(through));
  say("right %s", contents(cl.queue, right, 4096).c_str());
  say("right released %d", clReleaseMemObject(right));
  for (size_t i = 0; i < others.size(); ++i) say("other %s", contents(cl.queue, others[i], kBytes).c_str());
  for (cl_mem other : others) clReleaseMemObject(other);
}

static void parent_retained_through_association(const Setup& cl) {
  cl_mem parent = cl.buffer(kBytes);
  put(cl.queue, parent, kBytes, 8);
  cl_mem part = sub_buffer(parent, 0, 4096);
  clReleaseMemObject(parent);
  cl_mem through = memory_info<cl_mem>(part, CL_MEM_ASSOCIATED_MEMOBJECT);
  cl_int code = clRetainMemObject(through);
  say("retain through association %d: %u", code, references(through));
  clReleaseMemObject(part);
  say("without the part: %u, %s", references(through), contents(cl.queue, through, kBytes).c_str());
  say("last release %d", clReleaseMemObject(through));
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    show_rules(cl);
    show_flags(cl);
    parent_released_first(cl);
    parent_retained_through_association(cl);
  }
  cl.release();
  return finish();
}
