// The storm: one process in which many threads do everything at once that may meet inside an allocator. What a group of
// threads does is an actor (blocks.cpp, asking.cpp, forking.cpp, c_library.cpp, handlers.cpp, opencl.cpp, cuda.cpp);
// storm.cpp starts them, lets their threads die and be born, watches for hangs and checks the figures at the end.
// Everything shared is atomic and nothing here locks: forked children go on with it.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/malloc/programs/check.hpp"

namespace storm {

using check::Random;

// `turn` is called over and over by each of `threads` threads. `begin` comes before any turn and answers false when the
// machine has not what the actor needs; `end` when the threads of all actors are gone. Both may be null.
struct Actor {
  const char* name;
  unsigned threads;
  void (*turn)(Random& random);
  bool (*begin)();
  void (*end)();
};

// An actor is known before main starts.
struct Registered {
  explicit Registered(const Actor& actor);
};

extern std::atomic<bool> ended;  // no further turns
const char* scratch_folder();
const char* scratch_folder();   // for files; removed by the driver
bool others_allocate();         // libraries in front of Cistern
const char* programs_folder();  // for this program and its plug-ins

// Says it with the seed, then waits for a debugger where one was promised (--stay), or ends the process.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

// Ends when `child` did, which must be with status 0; a child that does not end is a hang.
void require_good_end(pid_t child, const char* what);

// --- blocks.cpp: what the forking actor's children use of it
void churn_blocks(Random& random, int steps);
void free_inherited_blocks();

// --- asking.cpp
void ask_something(Random& random);
// With nobody else at work: that a known number of blocks changes the figures by just that number.
void require_exact_figures(Random& random, const char* when);

// Two locks of the C library are not freed in a forked child, also without Cistern: a library that goes takes the one
// of exit's functions, and who looks up a host that of its configuration, which threads take as they end. So neither is
// done while a child is made that will have threads or call exit. Not a lock that a child may find taken.
class Exclusion {
 public:
  enum Side : int { under_lock = 1, forking_to_exit = -1 };
  explicit Exclusion(Side side);
  ~Exclusion();  // in the parent: the child has its own copy, of no use to it

 private:
  const Side side_;
};

// --- c_library.cpp: calls that the C library keeps working in a forked child
void use_stdio(Random& random);

}  // namespace storm
