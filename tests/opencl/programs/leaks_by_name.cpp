// Leaves one buffer of 1 MiB as it is told (reports_tests.py): lost, held in a variable, or none; then ends as it is
// told.
// harness: leaks=1
// harness: arguments=lost
#include "observe.hpp"

cl_mem held;  // for anybody to read

// What comes late all the same: a destructor of the program's, and a line that stdio holds until the very end.
struct SaysLate {
  bool on = false;
  ~SaysLate() {
    if (on) printf("the destructor's turn\n");
  }
};
static SaysLate late;

[[gnu::noinline]] static cl_mem lose_one(const Setup& cl) {
  const cl_mem made = cl.buffer(size_t{1} << 20);
  asm volatile("");  // no tail call
  return made;
}

// What a call left on the stack leads to nothing.
[[gnu::noinline]] static void clear_stack() {
  volatile char room[16384];
  for (volatile char& byte : room) byte = 0;
}

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "", then = count > 2 ? arguments[2] : "";
  if (then == "handler") atexit([] { exit(5); });  // comes after all that is registered later
  {
    Setup cl;
    if (what == "lost") lose_one(cl);
    if (what == "held") held = lose_one(cl);
    if (what == "nothing") clReleaseMemObject(lose_one(cl));
    cl.release();
  }
  clear_stack();
  finish();
  late.on = then == "say-late";
  if (late.on) printf("a line without an end");
  if (then == "exit") exit(atoi(arguments[3]));
  return 0;
}
