// The recording that CISTERN_RECORD asks for: where its file is, and how it ends (stats/recording.hpp writes it).
#pragma once
#include <atomic>

#include "shim/process/process.hpp"

namespace cistern {

// Other code than this is not even looked at in a process that is not recorded.
inline constinit std::atomic<bool> is_recording{false};
inline bool is_recorded() { return is_recording.load(std::memory_order_relaxed); }
void make_recording();
// At the start, behind the host pool's. Whether a file can be made is asked now, while the user looks; the first event
// makes it.
inline void note_recording() {
  if (!options().record.empty()) make_recording();
}
// The process ends by itself: names of the call sites are added, and what went wrong is said. Needs a large stack, and
// no lock is held. A second call does nothing.
void end_recording();

// The child records in a file of its own, if it records at all. `under_lock`: a signal handler forked that had
// interrupted this thread under a lock of ours: it records nothing.
void recording_after_fork_in_child(bool under_lock);

}  // namespace cistern
