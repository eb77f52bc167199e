// The state of a process's CUDA memory: contexts, pooled blocks, tracked allocations, counters.
//
// Room: CUDA: what is known of its memory, contexts and streams.
// May include: pool/base, pool, pool/staging, stats, stats/unwind, backends/cuda, shim/process, shim/staging,
//   shim/include/cistern.
#pragma once
#include "backends/cuda/staging_chunks.hpp"
#include "shim/cuda/account.hpp"
#include "shim/cuda/captures.hpp"
#include "shim/cuda/contexts.hpp"
#include "shim/cuda/gather.hpp"
#include "shim/cuda/graph_memory.hpp"
#include "shim/cuda/missing.hpp"
#include "shim/cuda/next.hpp"
#include "shim/cuda/objects.hpp"
#include "shim/cuda/pools.hpp"
#include "shim/cuda/segments.hpp"
#include "shim/cuda/staging.hpp"
#include "shim/process/options.hpp"
#include "shim/staging/round_trips.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"
#include "stats/transfers.hpp"
#include "stats/waits.hpp"

namespace cistern::cuda {

struct CudaState {
  CudaState(const Functions& below, const Missing& missing);

  Functions functions;  // the pools' way down
  const Missing missing;
  CallGate gate;
  Blocks blocks;
  Captures captures;
  Contexts contexts;
  Account account;
  Pools pools;
  Segments segments;
  GraphMemory graph_memory;
  Objects objects;
  Transfers transfers;
  Staging staging;
  Gather gather;
  RoundTrips round_trips;
  Waits waits;

  const bool sites_on;
};

// Made on first use, never torn down: memory is freed by the program's last destructors too.
CudaState& state();
// The state if there is one.
CudaState* state_if_used();

// Notes what a real call answered: a sticky error poisons the current context.
CUresult note(CudaState& s, CUresult result);
void poison(Context* context);

// The program's own runtime call that led here, set by the exported cuda* observers (runtime.cpp).
struct Observed {
  const char* api;
  bool seen_by_driver;
};
inline constinit thread_local Observed* observed = nullptr;
// The name to put on an allocation: the runtime call, else the driver's. Also notes that a hook saw the runtime's call,
// which then does not count as escaped.
const char* api_name(const char* driver_name);

SiteId site_of_call(const CudaState& s, const char* api);

// Around a call that waits for a device.
template <class Pass>
CUresult counted_wait(CudaState& s, const char* driver_name, Pass pass) {
  const char* const api = api_name(driver_name);
  return s.waits.timed(api, pass, [&] { return site_of_call(s, api); });
}

// An object that the program made; nothing for what the runtime makes for itself.
void note_object(CudaState& s, ObjectType type, const void* handle, const char* driver_name);
// Around the driver's call that ends it: the handle may be reused immediately.
template <class Pass>
CUresult end_object(const void* handle, Pass pass) {
  CudaState& s = state();
  ObjectRecord record;
  const bool known = s.objects.take(handle, record);
  const CUresult answer = note(s, pass());
  if (known && answer != kSuccess && answer != kDeinitialized) s.objects.put_back(handle, record);
  return answer;
}

// Memory that goes with its context. `before` keeps what the pools hold of it out of everyone's hands; afterwards it is
// forgotten, or given back when the context turned out to live on.
class ContextEnd {
 public:
  ContextEnd(CudaState& s, Context* context);
  // It ended some time ago: nothing of it can be given back, and no call of ours is on its way there.
  enum Unseen { unseen };
  ContextEnd(CudaState& s, Context& context, Unseen);
  ~ContextEnd();
  ContextEnd(const ContextEnd&) = delete;
  ContextEnd& operator=(const ContextEnd&) = delete;
  void gone();
  // The same, and its memory and objects belong to another context of the device from now on.
  void gone_into(Context& heir);
  void stays();

 private:
  void take_out();
  Vector<Block*> programs_blocks();
  void end_programs_memory();
  void empty_ring();

  CudaState& s_;
  Context* context_;
  Vector<Block*> kept_, settled_;
  bool ends_range_ = false;
};

// Releases the chunks of staged copies, and everything that the pools keep and that has settled. Returns the bytes
// given back.
std::uint64_t trim_all(CudaState& s);
// For a call that ran out of memory: gives back what the pools keep, while a stream captures first what is idle. The
// bytes that came free; at least 1 after waiting for other threads that give back.
std::uint64_t trim_for_program(CudaState& s);

// Locks of single files, across fork.
void state_before_fork();
void state_after_fork();
void pitch_before_fork();
void pitch_after_fork();
void runtime_before_fork();
void runtime_after_fork();

// One joint account when memory ran out for good, on stderr (out_of_memory.cpp).
void report_out_of_memory(CudaState& s, const char* api, Family family, int device, std::uint64_t bytes);

// The driver knows nothing of this address: what it answers for it is what it answers for memory that is not there.
void* unallocated_address();

// The facts about a block for reports.
Tracked as_tracked(const Block& block);

// A pooled block that the program has given back: what hooks/allocate.cpp counted is taken out again.
struct Death {
  bool kept = false;    // by the pool
  bool waited = false;  // its free has waited for its context, which is counted too
  std::uint64_t now_ns = coarse_now_ns();
  bool is_recorded = false;  // by record_death, earlier
};
// For a recording: a block that the program got, before it may give it back; one that it gives back, before another
// thread may get the address; a request that the driver refused.
void record_birth(const Block& block);
void record_death(const Block& block);
void record_failed(CudaState& s, const recording::Kind& kind, const char* api, std::uint64_t bytes);
void account_death(CudaState& s, Block* block, const Death& death = {});

// Taken of the device by this process, cached blocks included.
inline std::uint64_t taken_bytes(const Device& device) {
  return device.reserved_bytes.load(std::memory_order_relaxed) + device.tracked_bytes.load(std::memory_order_relaxed);
}

// CISTERN_DEVICE_LIMIT, in bytes of this device; 0: none.
std::uint64_t limit_of(const Device& device);
// Whether it leaves room for so much more memory of the device, cached blocks counted as taken.
bool limit_allows(const Device& device, std::uint64_t bytes);
// The same, and whether the driver has so much. It is asked if its last answer leaves that open and no stream captures;
// a context of the device is current.
bool room_for(Device& device, std::uint64_t bytes);

// All pools of the process, as room for a call.
class Room {
 public:
  explicit Room(CudaState& s) : s_(s) {}
  bool out_of_memory(CUresult answer) const { return answer == kOutOfMemory; }
  std::uint64_t given_back() const { return s_.pools.source().frees_done.load(); }
  bool make() { return trim_for_program(s_) != 0; }

 private:
  CudaState& s_;
};

// A call that takes memory of the device (null: none that is known, or pinned memory): within the limit, and what the
// pools keep makes way for it.
template <class Pass>
CUresult with_room(CudaState& s, Device* device, std::uint64_t bytes, Pass pass) {
  const auto limited = [&] { return device && !limit_allows(*device, bytes); };
  return cistern::with_room(Room(s), [&] { return limited() ? kOutOfMemory : pass(); });
}

// Around an allocation of the pool's from the driver: how much memory it took. Only the first ones are measured.
class GranuleMeasurement {
 public:
  GranuleMeasurement(CudaState& s, Device& device, std::uint64_t bytes);
  void allocated();

 private:
  bool ask(std::size_t* free_bytes);

  CudaState& s_;
  Device& device_;
  std::uint64_t bytes_, calls_ = 0;
  std::size_t free_before_ = 0;
  bool measures_ = false;
};

// Bytes of the device that the program holds, or that cannot come back to it immediately.
std::uint64_t used_bytes(CudaState& s, const Device& device);
// Bytes more that the driver would have free without the memory that the pool keeps, as far as that can go back
// immediately.
std::uint64_t kept_bytes(CudaState& s, const Device& device);

// Samples total, free and ours while the driver is alive; at most every second, on slow paths. A context of the device
// is current.
void sample_device_memory(CudaState& s, Device& device);

}  // namespace cistern::cuda
