// A snapshot: every figure that a report may show, as plain values taken at one moment.
// Reports are pure functions of it (report.hpp). A figure that does not exist is absent
// (empty optional or empty list), never 0; one that is estimated is named in `estimated`. It is collected first, which
// is quick; stacks are found later (resolve.hpp).
//
// Room: what is counted and called by name: figures, call sites, symbols.
// May include: pool/base, pool, stats/unwind, stats/python.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"
#include "stats/copy_direction.hpp"
#include "stats/history.hpp"
#include "stats/leak_class.hpp"
#include "stats/standing.hpp"

namespace cistern {

struct UnpooledFigure {
  const char* reason;
  std::uint64_t count;
};

// One of the 21 size classes of the report: 0 = up to 4 KiB, 1 = 4-8 KiB ... 20 = 512 MiB and more.
struct ClassFigures {
  int size_class;
  std::uint64_t allocations, hits, live_blocks, cached_blocks, cached_bytes, high_water_blocks;
  // The size of live blocks as the source gave them, and as the program asked. Both or neither.
  std::optional<std::uint64_t> live_bytes{}, requested_bytes{};
  std::optional<double> waste_ratio() const {
    if (!live_bytes || !requested_bytes || !*live_bytes) return std::nullopt;
    return 1.0 - static_cast<double>(*requested_bytes) / static_cast<double>(*live_bytes);
  }
};

// Blocks of one size in a pool that cuts pages into blocks (host).
struct SizeFigures {
  std::uint64_t block_bytes, allocations, live_blocks;
  std::uint64_t free_blocks;  // in its pages, those never used among them
};

// Memory that a device's driver holds for graphs, as it last told.
struct GraphMemoryFigures {
  std::uint64_t used_bytes, used_peak_bytes, reserved_bytes, reserved_peak_bytes;
  double sampled_at_s;
};

struct KindFigures {
  // "host", "opencl", "pinned", "managed", "registered", "external"; by device "device:0", "async:0", "graph:0",
  // "array:0", "vmm:0". Only shown: what a report must know of a kind, members below say.
  String name;
  std::uint64_t allocations, frees, pool_hits, pool_misses, driver_allocs, driver_frees, driver_syncs, driver_queries;
  std::uint64_t live_blocks, live_bytes, peak_bytes, pooled_blocks, pooled_bytes, failed;
  std::optional<double> peak_at_s;  // seconds after the start
  bool pooled_kind;                 // false: only counted, so pool figures are left out
  bool is_host = false;             // the kind of malloc and new, which every process has
  Vector<UnpooledFigure> unpooled;
  Vector<ClassFigures> classes;                    // only classes that were used
  std::optional<std::uint64_t> allocated_bytes{};  // in all
  std::optional<std::uint64_t> temporary{};        // blocks that were freed by the next call
  // The part of live_bytes that the program asked for; absent where the two are always the same.
  std::optional<std::uint64_t> requested_bytes{};
  Vector<SizeFigures> sizes{};  // only those in use
  Levels over_time{};           // live bytes
  // Blocks that were given back while commands used them: those that can be reused immediately, behind those commands,
  // and those that had to wait for their end, by reason.
  std::uint64_t kept_in_order = 0;
  Vector<UnpooledFigure> waited{};
  std::optional<GraphMemoryFigures> graph_memory{};  // of graph:N
};

struct Module;  // stats/unwind/modules.hpp

struct FrameFigures {
  std::uint64_t address;  // the call's, in this process; 0 where the module was unloaded and only the offset is left
  std::uint64_t offset;   // the call's, in the module file's address space, as addr2line takes it
  String module;          // path
  String build_id;        // hex, may be empty
  String function;        // demangled; empty where unknown
  String file;            // empty where unknown
  unsigned line;          // 0 where unknown
  bool inlined;           // an inline frame: same address as the next one
  bool python;            // a frame of Python code: function, file and line
  bool rust;              // the function is one of Rust
  bool folded;            // native code on a stack of Python code: only counted where room is short
  const Module* closed;   // the module that it lay in, if that was unloaded
};

// A call site, by what it did with the memory of one kind.
struct UsingSite {
  String kind;
  const char* api;  // the call of its last allocation
  std::uint32_t site;
  std::uint64_t allocations, allocated_bytes;
  std::uint64_t temporary;                // those that the next call for memory of the kind freed
  std::uint64_t peak_blocks, peak_bytes;  // at the kind's own peak
  Vector<FrameFigures> frames;            // leaf first; found by resolve()

  // The cost of each allocation and free would go away outside of the loop.
  bool allocates_in_a_loop() const { return allocations >= kManyAllocations && temporary >= allocations / 2; }

 private:
  static constexpr std::uint64_t kManyAllocations = 1000;
};

// A call site's live memory over time.
struct SiteTrend {
  String kind;
  std::uint32_t site;
  const char* api;
  Trend trend;
  Levels levels;
  bool is_host = false;  // made by malloc or new
};

struct GrowingSite : SiteTrend {
  Vector<FrameFigures> frames;  // leaf first; found by resolve()
  bool suppressed = false;
};

// When most of what is reserved was not live.
struct WorstMoment {
  double at_s;
  std::uint64_t reserved_bytes, live_bytes;
};

// Reference counts, summed over some blocks: created + retained - released are left.
struct References {
  std::uint64_t created = 0, retained = 0, released = 0;
};

// Live blocks of one kind, one class and one site, grouped.
struct LeakFigures {
  String kind;
  LeakClass leak_class;
  const char* object;  // "buffer", "sub-buffer", "image", "cudaMalloc block", ...
  std::uint64_t blocks, bytes;
  std::optional<References> references;            // objects that are counted: OpenCL's
  std::optional<std::uint64_t> kept_parent_bytes;  // sub-buffers: the part of `bytes` in released parents they keep
  double first_s, last_s;                          // when the first and last of them were allocated
  const char* api;                                 // the call that made them: "clCreateBuffer"
  std::uint32_t site = 0;                          // 0: sites are off. resolve() finds the rest
  String owner;                                    // "train.py:42", or the basename of the module that made the call
  bool owned_by_program;                           // a script, or the main executable
  Vector<FrameFigures> frames;                     // leaf first
  struct Sizes {
    std::uint64_t least, most;
  };
  std::optional<Sizes> block_bytes{};          // as the program asked for them
  std::optional<std::uint64_t> bytes_error{};  // one standard deviation of an estimate
  bool suppressed = false;                     // known and accepted: neither shown nor counted as a leak
  std::size_t rule = 0;                        // the one of the snapshot's suppressions that names it
  bool is_host = false;                        // made by malloc or new
  bool inherited = false;                      // host: was there before this process was forked
  bool before_wake = false;                    // when no call site was noted yet
  Trend trend{};                               // for all memory that the site made, up to exit

  // The worst rows come first in every list.
  int rank() const {
    if (leak_class == LeakClass::possibly_lost) return 1;
    const bool is_drivers_own = is_host && leak_class == LeakClass::held_by_driver;
    return is_lost(leak_class) && !is_drivers_own ? 0 : 2;
  }
};

// Copies of one direction, one type of host memory and one way of waiting.
struct TransferFigures {
  const char* kind;       // "cuda", "opencl"
  const char* direction;  // "host to device", "device to host", "device to device", "host to host", "unknown"
  bool pageable;          // the host memory is not page-locked; without meaning between devices
  bool asynchronous;      // the call returned before the copy was done, or could have
  std::uint64_t count, bytes;
  std::uint64_t failed;  // beside them
  // Copies whose time is known: blocking ones, waits included, and others that the driver timed.
  std::uint64_t timed_bytes;
  std::optional<double> seconds;
  std::optional<double> rate_p50, rate_p95;  // bytes a second that one in two, and 95 in 100, do not exceed
  // The rate of copies whose time is known, as a part of the best rate of one copy of 1 MiB and more in this direction.
  std::optional<double> efficiency;
  // The site that copied most of `bytes`; null and 0 where sites are off.
  const char* api;
  std::uint64_t site_bytes;
  std::uint32_t site = 0;
  Vector<FrameFigures> frames;  // leaf first; found by resolve()

  bool touches_host() const { return cistern::touches_host(direction); }
};

// Copies of one call site, of one direction, one type of host memory and one way of waiting.
struct CopySite {
  const char* kind;
  const char* direction;
  bool pageable, asynchronous;
  std::uint64_t count, bytes, failed;
  std::optional<double> seconds;  // spent in the calls, where they block
  double lost_seconds;            // the part that the best rate of one copy of 1 MiB and more would have saved
  std::uint64_t unaligned;        // an address or a pitch is no multiple of kCopyAlignment
  std::uint64_t waited_for;       // asynchronous ones for which the thread's next call waited
  // Back to the host from where they had been put: those that were looked at, and those found as they were sent.
  std::uint64_t returns_sampled, returned_unchanged;
  const char* api;
  std::uint32_t site = 0;
  Vector<FrameFigures> frames;  // leaf first; found by resolve()

  bool tiny() const { return count >= kManyCopies && bytes / count <= kTinyBytesMax; }
  bool often_unaligned() const { return unaligned >= kManyCopies && unaligned >= count / 2; }
  bool in_lock_step() const { return waited_for >= kManyCopies && waited_for >= count / 2; }
  bool returns_unchanged() const {
    return returned_unchanged >= kReturnsMin && returned_unchanged >= returns_sampled / 2;
  }
  bool worth_a_line() const { return tiny() || often_unaligned() || in_lock_step() || returns_unchanged(); }
  bool loses_time() const { return lost_seconds >= kLostSecondsMin; }

  static constexpr std::uint64_t kCopyAlignment = 16;

 private:
  // Such copies cost more by themselves than for their bytes, by any driver and link.
  static constexpr std::uint64_t kTinyBytesMax = 16 << 10, kManyCopies = 1000, kReturnsMin = 4;
  static constexpr double kLostSecondsMin = 0.1;
};

// One call site's calls that wait for a device.
struct WaitSite {
  const char* kind;  // "cuda", "opencl"
  const char* api;
  std::uint32_t site;
  std::uint64_t count;
  double seconds;               // that the callers were blocked
  Vector<FrameFigures> frames;  // leaf first; found by resolve()

  bool worth_a_line() const { return count >= kManyWaits; }

 private:
  static constexpr std::uint64_t kManyWaits = 1000;
};

// Copies between pageable memory and a device, of sizes from `bytes_min` to twice that: what each way was
// measured to do.
struct StagingRange {
  std::uint64_t bytes_min;
  const char* won;  // "native", "staged"; null: not decided yet
  unsigned native_trials, staged_trials;
  // Bytes a second, end to end and by how long the caller was blocked; absent where there was no trial that counts.
  std::optional<double> native_rate, staged_rate, native_blocked_rate, staged_blocked_rate;
};

// Copies between the host's memory of one kind and a device, one direction.
struct StagingFigures {
  const char* kind;  // "cuda", "opencl"
  int device;
  const char* direction;
  const char* source;  // the kind of host memory: "memory", "file", "network-file", "shared-memory", "cold-file",
                       // "cold-network-file", "new-memory"
  std::uint64_t staged_copies, staged_bytes;  // through bounce buffers
  std::uint64_t passed_on_bytes;
  Vector<UnpooledFigure> passed_on;  // by reason
  Vector<StagingRange> ranges;
  bool asked_for = false;  // CISTERN_STAGING=on
};

// Small copies from pageable memory to a device that were held back and sent together.
struct GatherFigures {
  std::uint64_t copies, bytes;
  std::uint64_t submissions;      // driver copies that they became
  Vector<UnpooledFigure> sent{};  // how often they were sent, by what made it necessary
  const char* off = nullptr;      // why none is held back any more; null: copies still are
  String off_for{};               // the function that is the reason; empty: none
};

struct FrameworkFigures {
  std::string_view name;  // "PyTorch"
  const char* how;        // its tensors are shown one by one: "PYTORCH_NO_CUDA_MEMORY_CACHING=1"
  const char* when;       // it caches: " (on Intel's, by default)"
  bool is_switched;       // that is on
};

// Functions of a driver that the program asked for by name and that this version does not know. Their effect on memory
// is in no figure.
struct UnknownFunctions {
  Vector<String> names;      // as they were first asked for
  std::uint64_t others = 0;  // look-ups of further ones
};

// A Python interpreter of this process.
struct PythonFigures {
  unsigned major, minor, micro;
  const char* why_not;  // why its frames are not known; null: they are
};

// A device's memory as the driver last told it while it was alive.
struct DeviceMemoryFigures {
  int device;
  std::uint64_t total_bytes, free_bytes;
  std::uint64_t ours_bytes;  // this process's, as Cistern knows it: live and kept in pools
  double sampled_at_s;
  // Contexts, code, local memory, and what other processes hold. Other processes may free between two readings.
  std::uint64_t driver_owned_bytes() const {
    const std::uint64_t known = free_bytes + ours_bytes;
    return total_bytes > known ? total_bytes - known : 0;
  }
};

// The range of addresses that blocks of one context are cut from.
struct DeviceRangeFigures {
  int device;
  std::uint64_t address_bytes;
  std::uint64_t mapped_bytes, mapped_peak_bytes;  // of physical memory
  std::uint64_t used_peak_bytes;                  // by live blocks, and by work that still used freed ones
  std::uint64_t waiting_bytes, largest_free_bytes;
  std::uint64_t allocations, hits;  // that reached the ranges; hits mapped no memory
  std::uint64_t moved_pieces, driver_calls, lost_bytes;
};

// Memory by the devices that contexts were made of, where that is known (OpenCL): a context of several has its memory
// on any of them.
struct ContextDevice {
  String name;
  std::uint64_t total_bytes;  // 0: it does not say
};
struct ContextMemory {
  std::uint64_t number;  // among all contexts, in the order in which they were made; from 1
  std::uint64_t live_blocks, live_bytes, pooled_blocks, pooled_bytes;
};
struct ContextFigures {
  const char* kind;  // "opencl"
  Vector<ContextDevice> devices;
  std::uint64_t contexts_created, contexts_alive;
  std::uint64_t allocations, live_blocks, live_bytes, peak_bytes, pooled_blocks, pooled_bytes;
  std::optional<double> peak_at_s{};
  Vector<ContextMemory> contexts{};  // those with memory now, most first
};

// Objects of one type that one call site made and that were not given back.
struct ObjectSite {
  const char* type;
  const char* api;  // null: any of several calls
  std::uint32_t site;
  std::uint64_t alive;
  Vector<FrameFigures> frames;  // leaf first; found by resolve()
};

struct BlocksAndBytes {
  std::uint64_t blocks, bytes;
};
using Standings = std::array<BlocksAndBytes, kStandings>;

// The judgement of live memory; absent where there was none.
struct JudgingFigures {
  const char* why_not;  // null: it was judged
  unsigned unseen_threads;
  std::uint64_t unreadable_bytes, bytes_read, memory_bytes;
  double seconds;
  double threads_stopped_s = 0;  // 0: none was
};

// Handles that are not memory, by type.
struct ObjectFigures {
  const char* type;  // plural: "contexts", "queues", "kernels", "programs", "events", "samplers"; "CUDA streams", ...
  std::uint64_t created, alive;
};

// A rule that leaks are not counted by, and what it did.
struct SuppressionFigures {
  String rule;  // "leak:PATTERN"
  bool built_in;
  std::uint64_t sites = 0, blocks = 0, bytes = 0;
};

// The outcome of the gate (CISTERN_FAIL_ON) for a process that would have ended with 0.
enum class Outcome : std::uint8_t {
  passed,
  failed,
  undecided,     // Cistern cannot say whether live memory is what the gate counts
  misconfigured  // the rule of the gate cannot be read
};
constexpr std::size_t kOutcomes = 4;
constexpr const char* name_of(Outcome outcome) {
  constexpr const char* kNames[] = {"passed", "failed", "undecided", "misconfigured"};
  return kNames[static_cast<int>(outcome)];
}
struct GateFigures {
  Outcome outcome;
  String reason{};  // why, for the last two
};
// The outcomes of the processes that descend from this one and ended before it.
struct FamilyFigures {
  std::array<std::uint32_t, kOutcomes> counts{};

  std::uint32_t of(Outcome outcome) const { return counts[static_cast<std::size_t>(outcome)]; }
  std::uint32_t judged() const {
    return of(Outcome::passed) + of(Outcome::failed) + of(Outcome::undecided) + of(Outcome::misconfigured);
  }
  Outcome worst() const {
    if (of(Outcome::failed)) return Outcome::failed;
    if (of(Outcome::misconfigured)) return Outcome::misconfigured;
    return of(Outcome::undecided) ? Outcome::undecided : Outcome::passed;
  }
};

struct FragmentationFigures {
  String kind;
  std::uint64_t reserved_bytes, live_bytes;
  std::optional<std::uint64_t> requested_bytes;  // absent where it is not known
  std::uint64_t free_bytes, largest_free_bytes;
  bool splits = false;  // cuts what it holds into blocks; else whole blocks are kept, and there are no holes
  std::optional<std::uint64_t> reserved_peak_bytes{}, live_peak_bytes{};
  std::optional<WorstMoment> worst{};
  // Free memory that went back to the system, by what it went for.
  std::uint64_t returned_when_asked_bytes = 0, returned_by_age_bytes = 0, returned_under_pressure_bytes = 0,
                returned_by_maintenance_bytes = 0;
  std::optional<double> internal_ratio() const {
    if (!requested_bytes) return std::nullopt;
    return live_bytes ? 1.0 - static_cast<double>(*requested_bytes) / static_cast<double>(live_bytes) : 0.0;
  }
  // The peak of the pool's memory, divided by the peak of the program's.
  std::optional<double> reserved_per_live() const {
    if (!reserved_peak_bytes || !live_peak_bytes.value_or(0)) return std::nullopt;
    return static_cast<double>(*reserved_peak_bytes) / static_cast<double>(*live_peak_bytes);
  }
  double external_ratio() const {
    return free_bytes ? 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(free_bytes) : 0.0;
  }
};

// A pool that the program made through the library's interface; what it did lies in its kind's figures as well.
struct LibraryPoolFigures {
  String name;
  const char* kind;
  bool destroyed;
  std::uint64_t allocations, frees, failed, live_blocks, live_bytes, peak_bytes, allocated_bytes;
  std::uint64_t bytes_max;  // 0: no limit
};

// A moment of a report is one when the signal ended the process.
inline bool is_signal(std::string_view moment) { return moment.starts_with("SIG"); }

struct Snapshot {
  String version;
  int pid;
  std::optional<int> rank, ranks;
  String command;
  std::optional<double> start_unix_s;  // by the wall clock
  double wall_s;
  const char* moment;      // "exit", "_exit", "call", "request", or the signal that ended the process
  String sites;            // e.g. "gpu:all,host:off"
  String host_sites_mode;  // "512KiB": a sample of one block in so many bytes; "all"; "off"; "unseen", by a layer
  // CISTERN_WAKE: until a wake no call site is noted.
  bool sites_are_asleep = false;
  std::optional<double> sites_woke_at_s{};
  bool have_sites_slept() const { return sites_are_asleep || sites_woke_at_s; }
  Vector<KindFigures> kinds;
  Vector<LeakFigures> leaks;                        // GPU kinds, worst first
  Vector<UsingSite> at_peak;                        // sites that held most of each kind's peak, largest first
  std::optional<std::uint64_t> host_peak_seen{};    // host memory: the most when it was looked at; an estimate
  Levels host_over_time{};                          // as its site_trends have it
  Vector<UsingSite> in_loops;                       // sites that allocate in loops, most often first
  Vector<SiteTrend> site_trends;                    // all sites, while the snapshot is collected
  Vector<GrowingSite> growing;                      // those of each kind that grow fastest
  std::optional<BlocksAndBytes> host_without_site;  // no site is known of these, or where sampled, none was drawn
  Vector<LeakFigures> host_sites;                   // live host blocks, worst first; estimated where they are samples
  Standings host_standings;                         // all live host blocks, whether they have a site or not
  std::optional<JudgingFigures> judging;
  Vector<SuppressionFigures> suppressions;  // the user's, and those of the built-in list that matched
  String suppressions_fault{};              // lines of the user's that could not be read; empty: none
  std::optional<GateFigures> gate;          // absent: there is none, or the process fails by itself
  FamilyFigures family{};                   // none judged: there were no others, or they count into another's
  std::optional<int> exit_code;             // the code that the process ends with instead of its own 0
  Vector<ObjectFigures> objects;
  Vector<ObjectSite> object_sites;  // for each type that keeps them, the three with most alive
  Vector<FragmentationFigures> fragmentation;
  Vector<LibraryPoolFigures> library_pools;  // as they were made
  Vector<TransferFigures> transfers;         // kind by kind, largest first
  Vector<CopySite> copy_sites;               // most bytes first
  Vector<WaitSite> waits;                    // for each kind, the three sites that wait most often
  Vector<StagingFigures> staging;
  std::optional<GatherFigures> gathered;
  std::uint64_t staging_bytes;      // pinned memory that copies go through
  std::optional<double> staging_s;  // that threads spent copying to and from it
  Vector<DeviceMemoryFigures> device_memory;
  Vector<DeviceRangeFigures> device_ranges;
  Vector<ContextFigures> contexts;
  Vector<PythonFigures> pythons;
  Vector<FrameworkFigures> frameworks;  // recognised, and known to cache inside themselves
  UnknownFunctions unknown_functions;
  std::uint64_t escaped;  // allocating runtime calls that never came to the driver hook
  std::optional<double> capture_mean_ns;
  std::uint64_t sites_count, tables_bytes, dropped_events;
  Vector<String> estimated;  // JSON paths of figures that are estimates: "kinds.host.peak_bytes"
  String text{};             // the text report, for a JSON report that has it; else empty

  bool used_gpu_memory() const {
    return std::any_of(kinds.begin(), kinds.end(),
                       [](const KindFigures& kind) { return !kind.is_host && kind.allocations; });
  }
  // Memory that is alive at an end that the program chose was never freed; otherwise it may still have been freed.
  bool ended_by_itself() const { return std::string_view(moment) == "exit" || std::string_view(moment) == "_exit"; }
};

}  // namespace cistern
