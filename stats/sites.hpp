// Sites: call stacks of allocations, interned. Capturing is the hot part; modules are noted when a stack is seen
// for the first time (a plugin may be gone at exit), names and lines found only when a report is made (symbols.hpp).
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "stats/snapshot.hpp"
#include "stats/unwind/unwinder.hpp"

namespace cistern {

struct Module;
namespace python {
struct Line;
}

// 0 means "no site": sites are off, or the stack could not be read.
using SiteId = std::uint32_t;

// Captures the caller's stack. `api` is a string literal naming the intercepted call. Leading frames that only pass
// the call on (Cistern's own module, the OpenCL loader, a shared CUDA runtime, libffi) are dropped, so that a site is
// the same whichever way the call came. Thread-safe, takes no lock for a stack that was seen before, keeps errno.
// A process may have any number of different stacks of frequent calls: what is kept of those leaves room for others.
enum class Calls { occasional, frequent };
SiteId capture_site(const char* api, Calls calls = Calls::occasional);

// No site is captured until they wake (CISTERN_WAKE).
inline constinit std::atomic<bool> sites_are_asleep{false};
inline void put_sites_to_sleep() { sites_are_asleep.store(true, std::memory_order_relaxed); }
// Safe in a signal handler. False: they were awake.
bool wake_sites();
struct SitesSleep {
  bool asleep = false;
  std::optional<std::uint64_t> woke_at_ns;  // since the start; nothing: they never slept, or still do
};
SitesSleep sites_sleep();

// While one lives, sites of such calls in this thread begin where a function of the library's interface returns to:
// what is further in is ours, in whatever module it lies.
class CalledFrom {
 public:
  CalledFrom(const void* return_address, Calls calls) : calls_(static_cast<int>(calls)), before_(callers[calls_]) {
    callers[calls_] = return_address;
  }
  ~CalledFrom() { callers[calls_] = before_; }
  CalledFrom(const CalledFrom&) = delete;
  CalledFrom& operator=(const CalledFrom&) = delete;

  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local const void* callers[2] = {};

 private:
  const int calls_;
  const void* const before_;
};

// The site's frames with module, offset and build id but without names; leaf first. Takes the dynamic linker's lock.
Vector<FrameFigures> site_frames(SiteId site);
// The same for a recording, at any moment: calls nothing that another library may define. False: a thread forks, which
// is not waited for.
struct RawFrames {
  void* context;
  void (*call)(void* context, const char* api);
  void (*native)(void* context, const Module* module, std::uintptr_t address);  // null: generated code
  void (*python)(void* context, const python::Line& line);
};
bool visit_raw_frames(SiteId site, const RawFrames& visitor);
// The code that made the intercepted call: a script's line ("train.py:42"), else a module, by the basename of its path
// (empty where unknown). Also whether that is the program: the main executable, or a script that it runs.
struct SiteOwner {
  String name;
  bool is_program;
};
SiteOwner site_owner(SiteId site);

// Leaks of one kind, call and site (0: none), none counted yet.
LeakFigures leak_at(SiteId site, String kind, const char* object, const char* api);

struct SiteStatistics {
  std::uint64_t sites;
  std::optional<double> capture_mean_ns;  // from a sample of the captures, when there were enough
  std::uint64_t dropped;                  // captures that failed
};
SiteStatistics site_statistics();

// Those that a stack has shown.
Vector<PythonFigures> pythons_seen();

// From now on captures make no system call but for memory.
void sites_use_few_system_calls();

// The locks of sites, modules and symbols.
void sites_before_fork();
void sites_after_fork();
void sites_after_fork_in_child();

}  // namespace cistern
