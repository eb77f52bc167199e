// The composition root: pools x sources x statistics of one process, its snapshot, and the end-of-process protocol.
#pragma once
#include <atomic>

#include "shim/core/options.hpp"
#include "stats/counters.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

enum class Phase : int { running, exiting, reported };

// Options, read on first use. Not for use inside malloc.
const Options& options();

Phase phase();
// Exit begins: the program called exit or returned from main; no destructor has run. Idempotent.
void exit_begins();
// The last destructor has run ("exit") or the program ended at once ("_exit"): write the report, once.
// For a process that has something to say (shim/lifecycle.cpp).
void process_ended(const char* moment);

bool gpu_used();
// Set by whoever makes the state of a GPU kind. Most processes have none, and then their code is not even looked at.
inline constinit std::atomic<bool> gpu_state_made{false};

// Another copy of Cistern in this process does the work: this one says nothing at the end.
void stand_aside();

// Everything that a report may show, now (snapshot.cpp).
Snapshot take_snapshot(const char* moment);
// Renders in the configured format to where CISTERN_REPORT says (report_output.cpp).
void write_report(const Snapshot& snapshot);
void report_end(const char* moment);

// The child counts its time, and its end, from the fork.
void begin_anew_in_child();

namespace host {
// Host memory (host_figures.cpp), served from the pool or counted only.
KindFigures figures();
// Absent where the pool doesn't serve. `requested_ratio`: of live bytes, as far as known.
std::optional<FragmentationFigures> fragmentation(std::optional<double> requested_ratio);
// A child counts anew.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// While one lives on this thread (dlopen, spdlog, libunwind) blocks get no call site, and those of the C library are
// not counted. Blocks of the pool are live blocks like others: they are few.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();

 private:
  const int errno_;  // whatever is done meanwhile is no business of the program's
};
}  // namespace host

namespace cuda {
bool used();  // any CUDA memory was asked for in this process
void add_kinds(Vector<KindFigures>& kinds, Vector<FragmentationFigures>& fragmentation);
void add_leaks(Vector<LeakFigures>& leaks);
void add_transfers(Snapshot& snapshot);
void add_devices(Snapshot& snapshot);
enum class PooledKind { device, pinned };
// Over all devices; the largest block that is kept.
KindFigures total_figures(PooledKind kind, std::uint64_t* largest_kept_bytes);
// Returns the bytes given back to the driver.
std::uint64_t trim(PooledKind kind, std::uint64_t keep_bytes, std::uint64_t unused_for_ns);
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
}  // namespace cuda

namespace opencl {
KindFigures figures();
bool used();  // any OpenCL memory was allocated in this process
void add_leaks(Vector<LeakFigures>& leaks);
void add_objects(Vector<ObjectFigures>& objects);
FragmentationFigures fragmentation();
// Returns the bytes given back to the driver.
std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t unused_for_ns);
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
}  // namespace opencl

}  // namespace cistern
