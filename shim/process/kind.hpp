// A kind of memory as the core sees it, and other kinds: one folder, which makes one `Kind`, and one row of kinds.def.
// Reports, the C API and fork ask every kind by going through the rows.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>

#include "stats/sites.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

class JudgedMemory;
struct Options;
namespace library {
struct KindMemory;
}

// A pool that the C API names (cistern_kind in cistern.h).
struct KindPool {
  int id;
  // The figures of all its parts together, with the peak at one time; also the largest block that is retained.
  KindFigures (*figures)(std::uint64_t* largest_kept_bytes);
  // Gives back memory that was unused for so long (host: all that is free). Returns the bytes given back.
  std::uint64_t (*trim)(std::uint64_t keep_bytes, std::uint64_t unused_for_ns);
  // Most that its parts had of the driver at one time. Null: it has one part.
  std::uint64_t (*reserved_peak_bytes)() = nullptr;
  // The option that says how much trims by time leave. Null: there is none.
  std::uint64_t Options::*left_by_time = nullptr;
};

// A block in the program's hands, as the library shows it.
struct LiveBlock {
  int pool;    // KindPool::id
  int device;  // -1: of none
  std::uintptr_t address;
  std::uint64_t bytes;
  const char* api;
  SiteId site;
  std::uint64_t born_ns;
};
using VisitLive = void (*)(void* context, const LiveBlock& block);

// See core/fork.cpp. `in_child_under_lock`: in a child of a signal handler that interrupted this thread under a lock of
// ours, and goes on with it.
struct ForkPart {
  void (*before)(), (*in_parent)(), (*in_child)(), (*in_child_under_lock)();
};

struct Kind {
  const char* name;
  std::span<const KindPool> pools;
  // Its memory for the C interface: a table for each cistern_kind (library/kind_memory.hpp).
  std::span<const library::KindMemory* const> memory;
  // Any of its memory was asked for in this process.
  bool (*used)();
  // Figures, fragmentation, leaks and whatever else a report shows of it; nothing where there is nothing.
  void (*add_to)(Snapshot& snapshot);
  // For the account of an out-of-memory line.
  std::uint64_t (*live_bytes)();
  ForkPart fork;
  // The program copies between a device and so much memory of the host; null: this kind does not need to know.
  void (*copied)(const void* memory, std::size_t bytes) = nullptr;
  // Live memory that is to be judged, and what else its driver gave out; null: the kind has none but the host pool's.
  void (*add_judged)(JudgedMemory& memory) = nullptr;
  // All live blocks that have records of their own; perhaps under locks. Null: there are none.
  void (*visit_live)(VisitLive visit, void* context) = nullptr;
  // Exit begins, and a report will be written.
  void (*before_exit)() = nullptr;
  // Exit begins. Last moment for what the program has asked for and the driver was not told yet.
  void (*exit_begins)() = nullptr;
};

// In the order of kinds.def: host memory first, which all others use.
std::span<const Kind* const> kinds();

// Large copies only: what is done for them pays at a few MiB.
inline void note_copied(const void* memory, std::size_t bytes) {
  constexpr std::size_t kBytesMin = std::size_t{4} << 20;
  if (bytes < kBytesMin) return;
  for (const Kind* kind : kinds())
    if (kind->copied) kind->copied(memory, bytes);
}

// Set by whoever makes the state of a kind other than host memory. Most processes have none, and then their code is not
// even looked at.
inline constinit std::atomic<bool> gpu_state_made{false};
// The process asked for memory of another kind than host memory.
inline bool gpu_used() {
  if (!gpu_state_made.load(std::memory_order_acquire)) return false;
  bool used = false;
  for (const Kind* kind : kinds().subspan(1)) used |= kind->used();
  return used;
}
// Called behind that, under no lock, where a thread may be started. Null: no part waits for it.
inline constinit std::atomic<void (*)()> gpu_state_hook{nullptr};
inline void call_gpu_state_hook() {
  if (const auto hook = gpu_state_hook.load(std::memory_order_relaxed)) hook();
}

// The library cuts blocks out of segments that it takes from kinds. This gives back those without blocks, waits
// for other threads that do, and returns the bytes: for a kind that is out of memory, under no lock. Null: there are
// none.
// Unsettled::too: those too that work may still use, which the driver's free waits for.
enum class Unsettled { stays, too };
inline constinit std::atomic<std::uint64_t (*)(Unsettled)> segments_trim{nullptr};
inline std::uint64_t trim_segments(Unsettled unsettled = Unsettled::stays) {
  const auto trim = segments_trim.load(std::memory_order_relaxed);
  return trim ? trim(unsettled) : 0;
}

}  // namespace cistern
