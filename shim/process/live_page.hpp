// The page of shared memory by which the command `cistern` speaks to a running process (CISTERN_LIVE): who asks counts
// a request up and rings, and the process counts up its answers. Answers that are reports are files beside it.
// There is no lock, and neither side trusts the other.
//
// /dev/shm/cistern-UID/NAMESPACE-PID-START             this page; UID is the process's, NAMESPACE its pid namespace,
//                                                      START when it began (proc(5), field 22): pids come again
// /dev/shm/cistern-UID/NAMESPACE-PID-START.json        the report of Request::refresh, not judged
// /dev/shm/cistern-UID/NAMESPACE-PID-START.judged.json that of Request::snapshot
//
// A process removes its files when it ends. Those of one that was killed stay until the next process of the user makes
// its own: then all of processes that are gone are removed.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

enum class Request : int {
  refresh,   // a report: live memory by site
  snapshot,  // the same, judged
  trim,      // pools give back memory that they keep without need: so many `returned_bytes`
  wake       // call sites are noted from now on (CISTERN_WAKE=command)
};
constexpr int kRequests = 4;

struct LivePage {
  static constexpr char kMagic[8] = {'C', 'I', 'S', 'T', 'L', 'I', 'V', 'E'};
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kBytes = 4096;

  char magic[8];
  std::uint32_t version;
  std::int32_t pid;  // in the process's own pid namespace

  // Written by who asks.
  alignas(64) std::atomic<std::uint32_t> bell;  // a futex: counted up behind each request
  std::atomic<std::uint32_t> asked[kRequests];

  // Written by the process.
  alignas(64) std::atomic<std::uint32_t> answered[kRequests];
  std::atomic<std::int32_t> failures[kRequests];  // 0, or an error number: the last answer's
  std::atomic<std::uint64_t> returned_bytes;
  std::atomic<std::uint32_t> has_thread;  // 0: it answers at its next call for a GPU
};
static_assert(sizeof(LivePage) <= LivePage::kBytes);

// The name of the report that answers is the page's with this behind it.
constexpr const char* ending_of_report(Request request) {
  return request == Request::snapshot ? ".judged.json" : ".json";
}

// The bell of a page that no thread looks at yet; null: there is none.
inline constinit std::atomic<const std::atomic<std::uint32_t>*> unwatched_live_bell{nullptr};
inline constinit std::atomic<void (*)()> live_bell_was_rung{nullptr};
// At calls for a GPU.
inline void look_at_live_page() {
  const auto* const bell = unwatched_live_bell.load(std::memory_order_acquire);
  if (bell && bell->load(std::memory_order_relaxed)) [[unlikely]]
    live_bell_was_rung.load(std::memory_order_relaxed)();
}

}  // namespace cistern
