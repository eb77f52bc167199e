// CL_MEM_REFERENCE_COUNT follows the program's own retains and releases, on fresh and on recycled objects.
// harness: recycles
#include "observe.hpp"

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    cl_mem buffer = cl.buffer(4096);
    say("created: %u", references(buffer));
    for (int i = 0; i < 4; ++i) {
      cl_int code = clRetainMemObject(buffer);
      say("retain %d: %u", code, references(buffer));
    }
    put(cl.queue, buffer, 4096, 1);
    for (int i = 0; i < 4; ++i) {
      cl_int code = clReleaseMemObject(buffer);
      say("release %d: %u", code, references(buffer));
    }
    say("still usable: %s", contents(cl.queue, buffer, 4096).c_str());
    say("last release %d", clReleaseMemObject(buffer));
  }

  // Two objects of one key are two objects.
  cl_mem first = cl.buffer(4096), second = cl.buffer(4096);
  say("distinct: %s", first != second ? "yes" : "no");
  clRetainMemObject(first);
  say("counts: %u %u", references(first), references(second));
  put(cl.queue, first, 4096, 11);
  put(cl.queue, second, 4096, 22);
  clReleaseMemObject(second);
  cl_mem third = cl.buffer(4096);
  put(cl.queue, third, 4096, 33);
  say("first: %s", contents(cl.queue, first, 4096).c_str());
  clReleaseMemObject(first);
  say("first after one release: %u, %s", references(first), contents(cl.queue, first, 4096).c_str());
  clReleaseMemObject(first);
  clReleaseMemObject(third);

  // Many at once, released in another order than made.
  std::vector<cl_mem> many;
  for (int i = 0; i < 64; ++i) many.push_back(cl.buffer(1024));
  for (int i = 0; i < 64; ++i) put(cl.queue, many[i], 1024, 100 + i);
  for (int i = 0; i < 64; i += 2) say("release even %d", clReleaseMemObject(many[i]));
  for (int i = 0; i < 64; i += 2) many[i] = cl.buffer(1024);
  for (int i = 0; i < 64; i += 2) put(cl.queue, many[i], 1024, 200 + i);
  for (int i = 0; i < 64; ++i)
    say("%d: %s, count %u", i, contents(cl.queue, many[i], 1024).c_str(), references(many[i]));
  for (cl_mem memory : many) clReleaseMemObject(memory);
  cl.release();
  return finish();
}
