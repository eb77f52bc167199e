// The account of a process's OpenCL objects: records by handle, the buffer pool, the counters.
//
// Room: OpenCL: what is known of its objects.
// May include: pool/base, pool, pool/staging, stats, backends/opencl, shim/process, shim/staging,
//   shim/include/cistern.
#pragma once
#include <memory>
#include <optional>

#include "backends/opencl/buffer_source.hpp"
#include "pool/base/handle_table.hpp"
#include "pool/base/last_answer.hpp"
#include "pool/base/range_index.hpp"
#include "pool/proportion.hpp"
#include "pool/recycle_pool.hpp"
#include "shim/opencl/devices.hpp"
#include "shim/opencl/first_use.hpp"
#include "shim/opencl/next.hpp"
#include "shim/opencl/order.hpp"
#include "shim/opencl/staging.hpp"
#include "shim/process/headroom.hpp"
#include "shim/staging/round_trips.hpp"
#include "stats/counters.hpp"
#include "stats/recording.hpp"
#include "stats/sites.hpp"
#include "stats/transfers.hpp"
#include "stats/waits.hpp"

namespace cistern::opencl {

enum class MemoryKind : std::uint8_t { buffer, sub_buffer, image, pipe, external, svm, usm };

// live -> (last release by the program) -> pooled -> live ...
//                                       -> orphan: sub-buffers or images keep it -> dead
//                                       -> dead: really released; the record stays for a while, to name a misuse
enum class MemoryState : std::uint8_t { live, orphan, pooled, dead };

struct MemoryRecord {
  MemoryKind kind = MemoryKind::buffer;
  MemoryState state = MemoryState::live;
  bool recyclable = false;  // made by clCreateBuffer, no host pointer
  bool has_callback = false;
  bool mapped_once = false;
  bool inherited = false;       // made before a fork, seen in the child
  bool recycled = false;        // the pool gave it: commands of a former life may be pending
  bool others_have_it = false;  // references that did not come through us, seen when its count was asked for
  FirstUse first_use = FirstUse::none;
  std::uint32_t references = 1;  // the program's own
  std::uint32_t children = 0;    // sub-buffers and images made from it that are not dead
  std::uint64_t retains = 0, releases = 0;
  cl_context context = nullptr;
  cl_bitfield flags = 0;
  std::uint64_t bytes = 0;  // 0 for what shares its parent's memory
  const void* parent = nullptr;
  const char* api = "";
  SiteId site = 0, released_site = 0;
  PartCounters* part = nullptr;  // counts for the devices of its context
  std::uint64_t born_ns = 0;
  // For recyclable buffers only: commands that may still run, and whether there were some whose end cannot be found
  // out.
  Vector<Use> uses{};
  bool end_unknown = false;
  std::uint64_t uses_now = 0;      // in this life, pending or not
  std::uint64_t pending_uses = 0;  // at most so often the commands of `uses`, and those before them, use it
};

inline CountedBlock as_counted(const MemoryRecord& record, const void* handle) {
  return {record.bytes, record.api, record.site, handle, record.part};
}

// The key of the requests that the pool may give the buffer to.
inline PoolKey pool_key(const MemoryRecord& buffer) {
  return {reinterpret_cast<std::uintptr_t>(buffer.context), buffer.flags, buffer.bytes};
}

// The facts about a context that each create and release of a buffer asks for: threads remember them (traits_of). Code
// that changes one of them, or adds or removes a record, calls context_traits.changed().
struct ContextTraits {
  bool known = false;
  bool command_buffers = false, unseen_commands = false, inherited = false;
  bool all_queues_seen = false, calls_back = false;
  bool in_host_memory = false;
};

struct ContextRecord {
  std::uint32_t references = 1;
  bool command_buffers = false;
  bool unseen_commands = false;  // may still run, of queues that the program gave up
  bool all_queues_seen = false;
  bool several_queues = false;  // at one time, at some time
  bool calls_back = false;
  std::uint32_t queues = 0;
  bool inherited = false;
  bool in_host_memory = true;  // the objects of a device of it, as far as is known
  std::uint64_t number = 0;    // among all contexts that the program made; 0: it did not make it here
  DeviceGroup* group = nullptr;
  ContextChunks chunks{};                    // from the first copy that goes through them
  Vector<std::weak_ptr<QueueClock>> clocks;  // those of the program's queues, and older ones
  std::size_t clocks_max = 16;               // when those are thrown out
};

struct Queue {
  std::uint32_t references = 1;
  bool profiled = false;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  std::shared_ptr<QueueClock> clock;
  bool inherited = false;
};

struct Kernel {
  std::uint32_t references = 1;
  bool inherited = false;
  Vector<const void*> arguments;  // 8-byte values that may be memory objects
};

// A command of a queue, known by its event: when that has ended, on an in-order queue so have all before it.
struct CommandEvent {
  std::shared_ptr<QueueClock> clock;
  std::uint64_t number = 0;
};

// A copy whose time its event will tell.
struct TimedCopy {
  TransferKey key;
  std::uint64_t bytes;
};

// Host memory that does not count as the program's pageable memory.
struct HostRange {
  bool allocated = false;           // SVM, USM
  unsigned maps = 0;                // of memory objects
  unsigned writes = 0;              // of them, and of its own: those whose unmap takes back what the program wrote
  std::uint64_t written_bytes = 0;  // by the last of those
};

enum class CountedType : std::uint8_t { program, event, sampler, count };

struct Counted {
  CountedType type = CountedType::program;
  std::uint32_t references = 1;
  bool inherited = false;
  SiteId site = 0;       // of events
  CommandEvent command;  // of events
  std::optional<TimedCopy> copy{};
};

struct OpenclState;

// The source of the pool. Each buffer has a record, which is dead before the real release: another thread may get the
// same handle immediately.
class RecordedBuffers : public BufferSource {
 public:
  RecordedBuffers(OpenclState& s, const Functions& real, DriverCalls& calls) : BufferSource(real, calls), s_(s) {}
  void release(cl_mem buffer);

 private:
  OpenclState& s_;
};
static_assert(Source<RecordedBuffers>);

struct OpenclState {
  explicit OpenclState(const Functions& below);

  Functions functions;  // the pool's and the clocks' way down
  DriverCalls calls;
  KindCounters counters;
  RecordedBuffers source;
  // Every hit meets these two, and the counters: spin locks.
  RecyclePool<RecordedBuffers, SpinLock> pool;
  HandleTable<MemoryRecord, SpinLock> memory;  // cl_mem, and SVM and USM pointers

  HandleTable<ContextRecord> contexts;
  LastAnswer<ContextTraits> context_traits;
  HandleTable<Queue> queues;
  HandleTable<Kernel> kernels;
  HandleTable<Counted> counted;
  RangeIndex<HostRange> host_ranges;
  Transfers transfers;
  Staging staging;
  RoundTrips round_trips;
  Waits waits;
  Counter contexts_created{0}, queues_created{0}, kernels_created{0};
  Counter counted_created[static_cast<int>(CountedType::count)]{};

  std::atomic<std::uint64_t> reserved_peak_bytes{0};  // live, and kept for reuse
  // Extension functions that we don't know may enqueue commands, make memory objects, or set kernel arguments.
  std::atomic<bool> unknown_enqueues{false}, unknown_creators{false}, unknown_arguments{false};
  OrderEnd order_end;
  Devices devices;
  FirstUses first_uses;
  Headroom headroom;
  Proportion proportion;  // keeps the pool in proportion to the program's live memory

  // Dead records, oldest first, so that they don't pile up.
  Lock dead_lock;
  Deque<const void*> dead;

  const bool sites_on;
};

// For a record that becomes the program's, or no longer is; under its lock, or before another thread can find it.
inline void expect_first_use(OpenclState& s, MemoryRecord& record) {
  if (record.first_use != FirstUse::open) return;
  record.first_use = FirstUse::expected;
  s.first_uses.expect(record.bytes);
}
inline void expect_no_first_use(OpenclState& s, MemoryRecord& record) {
  if (record.first_use != FirstUse::expected) return;
  record.first_use = FirstUse::open;
  s.first_uses.expect_no_more(record.bytes);
}

// Made on first use, never torn down: objects are released by the program's last destructors too.
OpenclState& state();
// The state if there is one.
OpenclState* state_if_used();
void state_before_fork();
void state_after_fork();

constexpr recording::Kind kRecorded = {1, "opencl"};
inline SiteId site_of_call(const OpenclState& s, const char* api) { return s.sites_on ? capture_site(api) : 0; }

// Around a call that waits for a device.
template <class Pass>
cl_int counted_wait(OpenclState& s, const char* api, Pass pass) {
  return s.waits.timed(api, pass, [&] { return site_of_call(s, api); });
}

// Releases all that the pool and the clocks hold of a context, so that the driver's own counts are the program's.
void drain_context(cl_context context);
// The same where the context's record is gone already: `clocks` are those that it had.
void drain_context(cl_context context, const Vector<std::shared_ptr<QueueClock>>& clocks);

Vector<std::shared_ptr<QueueClock>> clocks_of(cl_context context);
ContextTraits traits_of(OpenclState& s, cl_context context);
// Null: the queue was made unseen.
std::shared_ptr<QueueClock> clock_of(OpenclState& s, cl_command_queue queue);
cl_context context_of(OpenclState& s, cl_command_queue queue);

const char* kind_name(MemoryKind kind);

// Keeps the record of a dead object for misuse lines, and forgets the oldest.
void remember_dead(OpenclState& s, const void* handle);

// Accounts the event that a call gave the program, if it asked for one.
void note_event(const cl_event* event, CommandEvent&& command = {});

}  // namespace cistern::opencl
