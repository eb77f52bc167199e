// The state of the whole driver, behind one lock. The lock is never held while a stream's work runs or is waited for.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/simcuda/driver/address_window.hpp"
#include "tests/simcuda/driver/allocation.hpp"
#include "tests/simcuda/driver/link.hpp"
#include "tests/simcuda/driver/simcuda.hpp"

namespace simcuda {

struct Stream;
struct Event;
struct Capture;
struct MemoryPool;
using Locked = std::unique_lock<std::recursive_mutex>;

struct Device {
  int ordinal = 0;
  size_t bytes = 0;
  size_t granule = kGranule;
  size_t used = 0;                               // sum of allocations, each rounded to the granule
  size_t graph_bytes = 0, graph_bytes_peak = 0;  // the part of it that graphs have
  AddressWindow window;
  Link link;
  std::atomic<CUresult> lost{CUDA_SUCCESS};  // a fault's error: every context on it has it
  Context* primary = nullptr;
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  MemoryPool* default_pool = nullptr;
  MemoryPool* pool = nullptr;
};

struct Driver {
  std::recursive_mutex lock;  // recursive for destructors only: a graph may end while it is held
  std::vector<std::unique_ptr<Device>> devices;
  AddressWindow pinned;
  AllocationTable allocations;
  std::unordered_set<Context*> contexts;  // those alive; a Context itself is never deleted
  std::unordered_map<CUstream, std::shared_ptr<Stream>> streams;
  std::unordered_set<CUstream> destroyed_streams;  // whose handles have not come again
  std::unordered_set<CUstream> detached_streams;   // their green contexts were destroyed
  std::unordered_map<CUevent, std::shared_ptr<Event>> events;
  std::unordered_set<Capture*> captures;  // those not ended, the invalidated ones among them
  uint64_t last_id = 0;
};

// Never destroyed: threads of the program and of the simulator run until the process is gone.
Driver& driver();
inline Locked lock_driver() { return Locked(driver().lock); }

// Cuts a block of device memory, or pinned memory, without entering it into the table. 0: out of memory.
uintptr_t take_device_memory(Locked&, Device& device, size_t bytes);
void give_device_memory(Locked&, Device& device, uintptr_t address, size_t bytes);

// Poisons a block that nobody owns any more, outside the lock, and gives it back.
void poison_and_give(Locked& lock, const Allocation& allocation);

enum class ProcessState { kNotInitialized, kReady, kForked, kTornDown };
ProcessState process_state();

}  // namespace simcuda
