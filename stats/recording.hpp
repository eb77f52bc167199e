// Recording: every allocation, free, copy and failed request of GPU memory, and those of host memory that have a call
// site, in a file that lives on when the process is killed (CISTERN_RECORD). The kinds call `record` here; the file is
// chosen and ended by shim/process/record.hpp.
//
//   record           writes the event to the chunk of its thread's slot: recording.cpp
//     definitions    a kind, a call site or a thread that the file does not know yet: recording_definitions.cpp
//     take_chunk     a fresh chunk, if that one is full: recording_chunks.cpp
//       grow         blocks of the disk for more: recording_file.cpp
//       thin         at the maximum, the oldest chunks give way: recording_thinning.cpp
//
// The file is mapped and shared, so what was written is the kernel's, whoever is killed. No lock of this is taken at a
// fork, and whoever forks waits for none: the child has slots, chunks and a file of its own.
#pragma once
#include <atomic>
#include <cstdint>

#include "stats/recording_format.hpp"
#include "stats/sites.hpp"

namespace cistern::recording {

// In a page of memory that a child finds empty, whichever way it was made: it must not write to its parent's file.
struct Switch {
  std::atomic<bool> on;
};
inline constinit std::atomic<Switch*> the_switch{nullptr};

inline bool is_on() {
  const Switch* const one = the_switch.load(std::memory_order_relaxed);
  return one && one->on.load(std::memory_order_relaxed);
}

// A kind of memory as reports name it: "pinned", "device:0". The number is the same in every process.
struct Kind {
  std::uint16_t number;
  const char* name;
  int device = -1;  // -1: the name has none
};

// Only while it is on. Sets the event's time and thread. A free is recorded before another thread may get the address,
// an allocation before the program may free it. Keeps errno; allocates nothing of the program's.
void record(const Kind& kind, Event&& event);
void record_block(const Kind& kind, const void* address, std::uint64_t bytes, SiteId site, std::uint64_t weight);
void record_end(const Kind& kind, const void* address);

// `weight`: so many blocks it stands for, in parts of kWeight1.
inline void record_allocation(const Kind& kind, const void* address, std::uint64_t bytes, SiteId site,
                              std::uint64_t weight = Event::kWeight1) {
  if (is_on()) [[unlikely]]
    record_block(kind, address, bytes, site, weight);
}
inline void record_free(const Kind& kind, const void* address) {
  if (is_on()) [[unlikely]]
    record_end(kind, address);
}
inline void record_failure(const Kind& kind, std::uint64_t bytes, SiteId site) {
  if (!is_on()) [[likely]]
    return;
  record(kind, {.type = EventType::failed, .site = site, .bytes = bytes});
}

// --- The file
struct Plan {
  const char* const* paths;  // absolute; the first where no file is; null at the end
  std::uint64_t bytes_max, host_sample_bytes;
  bool clock_is_processors;  // see recording_clock.hpp
  char* const* arguments;    // the program's, null at their end; null: not known
};
// The next event makes the file, by `plan`, which stays.
void start(const Plan& plan);
// Null: none was made.
const char* file_path();
// For good: nothing is recorded from now on. Makes no system call.
void stop();

// The step that failed, and its errno. 0: nothing.
enum class Step { none, making, growing, thinning };
struct Trouble {
  Step step;
  int error;
};
Trouble trouble();

// The process ends by itself: no new chunk is used, and what no chunk has is given back to the disk. False: there is
// no file.
bool end_chunks();
// The sites that the file has.
bool is_defined(SiteId site);
SiteId last_defined();
// Then `names` go behind the chunks, and the file is marked as ended.
void end_file(std::span<const std::uint8_t> names);

// First of all. A signal handler may fork that interrupted this thread in an event. Its lock is free after the fork,
// and the fork waits for the pool's locks: threads that hold one of those are not to wait for this thread.
void before_fork();
// First of all in a forked child: the file is its parent's.
inline void stop_in_child() {
  if (Switch* const one = the_switch.load(std::memory_order_relaxed)) one->on = false;
}
// Then: the next event makes it.
void begin_anew_in_child(const Plan& plan);
// Or: it records nothing. An event that was interrupted by the handler that forked goes on, but not in the parent's
// file.
void record_nothing_in_child();
// This thread is in the middle of an event.
bool is_writing_here();

}  // namespace cistern::recording
