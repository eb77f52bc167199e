// A snapshot: every figure that a report may show, as plain values taken at one moment.
// Reports are pure functions of it (report.hpp). A figure that does not exist is absent
// (empty optional or empty list), never 0; one that is estimated is named in `estimated`.
#pragma once
#include <cstdint>
#include <optional>

#include "pool/internal_memory.hpp"

namespace cistern {

struct UnpooledFigure {
  const char* reason;
  std::uint64_t count;
};

// One of the 21 size classes of the report: 0 = up to 4 KiB, 1 = 4-8 KiB ... 20 = 512 MiB and more.
struct ClassFigures {
  int size_class;
  std::uint64_t allocations, hits, live_blocks, cached_blocks, cached_bytes, high_water_blocks;
};

struct KindFigures {
  String name;  // "host", "opencl", later "device:0", "pinned", "managed"
  std::uint64_t allocations, frees, pool_hits, pool_misses, driver_allocs, driver_frees, driver_syncs, driver_queries;
  std::uint64_t live_blocks, live_bytes, peak_bytes, pooled_blocks, pooled_bytes, failed;
  std::optional<double> peak_at_s;  // seconds after the start
  bool pooled_kind;                 // false: only counted, so pool figures are left out
  Vector<UnpooledFigure> unpooled;
  Vector<ClassFigures> classes;  // only classes that were used
};

struct FrameFigures {
  std::uint64_t address;  // of the call, in this process; 0 where the module was unloaded and only the offset is left
  std::uint64_t offset;   // of the call, in the module file's address space: what addr2line takes
  String module;          // path
  String build_id;        // hex, may be empty
  String function;        // demangled; empty where unknown
  String file;            // empty where unknown
  unsigned line;          // 0 where unknown
  bool inlined;           // an inline frame: same address as the next one
};

// Live blocks of one kind, one class and one site, grouped.
struct LeakFigures {
  String kind;
  const char* leak_class;  // "never freed" until reachability is judged
  const char* object;      // "buffer", "sub-buffer", "image", ...
  std::uint64_t blocks, bytes;
  std::uint64_t created, retained, released;       // reference counts summed over the blocks
  std::optional<std::uint64_t> kept_parent_bytes;  // sub-buffers: the part of `bytes` in released parents they keep
  double first_s, last_s;                          // when the first and last of them were allocated
  const char* api;                                 // the call that made them: "clCreateBuffer"
  String owner;                                    // basename of the module that made the call
  bool owned_by_program;                           // the module is the main executable
  Vector<FrameFigures> frames;                     // leaf first; empty when sites are off
};

// Handles that are not memory, by type.
struct ObjectFigures {
  const char* type;  // plural: "contexts", "queues", "kernels", "programs", "events", "samplers"
  std::uint64_t created, alive;
};

struct FragmentationFigures {
  String kind;
  std::uint64_t reserved_bytes, live_bytes, requested_bytes, free_bytes, largest_free_bytes;
  double internal_ratio() const {
    return live_bytes ? 1.0 - static_cast<double>(requested_bytes) / static_cast<double>(live_bytes) : 0.0;
  }
  double external_ratio() const {
    return free_bytes ? 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(free_bytes) : 0.0;
  }
};

struct Snapshot {
  String version;
  int pid;
  std::optional<int> rank, ranks;
  String command;
  double wall_s;
  const char* moment;  // "exit", "_exit", "call": when it was taken; leaks are judged at "exit" and "_exit" only
  String sites;        // e.g. "gpu:all,host:off"
  Vector<KindFigures> kinds;
  Vector<LeakFigures> leaks;  // largest first
  Vector<ObjectFigures> objects;
  Vector<FragmentationFigures> fragmentation;
  std::optional<double> capture_mean_ns;
  std::uint64_t sites_count, tables_bytes, dropped_events;
  Vector<String> estimated;  // JSON paths of figures that are estimates: "kinds.host.peak_bytes"
};

}  // namespace cistern
