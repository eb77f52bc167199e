// The settings and counters of the simulator. Settings are read from the environment at cuInit as SIMCUDA_<UPPER CASE>
// and changed at any time by simcuda_set, but those of devices count at cuInit only. Settings of one entry point have
// its name too: simcuda_set("fail_at:cuMemMap", 3), or SIMCUDA_EACH=fail_at:cuMemMap=3,latency_ns:cuMemCreate=193000.
#pragma once
#include <atomic>
#include <string>

namespace simcuda {

// name, default, meaning
#define SIMCUDA_SETTINGS(SETTING)                                                                          \
  SETTING(devices, 2, "number of devices")                                                                 \
  SETTING(memory, 8LL << 30, "bytes per device: accounted, committed only where touched")                  \
  SETTING(granule, 512, "device memory is taken in multiples of so many bytes: a power of two")            \
  SETTING(overhead, 0, "bytes that each module, library, executable graph and changed limit takes")        \
  SETTING(managed_on_device, 0, "1: managed memory takes device memory as soon as it is allocated")        \
  SETTING(stream_delay_us, 0, "delay before each stream operation runs")                                   \
  SETTING(latency_ns, 0, "busy wait in every driver call")                                                 \
  SETTING(alloc_latency_ns, 0, "more of it in calls that allocate device memory")                          \
  SETTING(free_latency_ns, 0, "more of it in calls that free")                                             \
  SETTING(sync_latency_ns, 0, "more of it in calls that wait for the device")                              \
  SETTING(pin_latency_ns_per_mib, 0, "more of it per MiB of pinned memory")                                \
  SETTING(page_lock_ns, 0, "page-locking: busy wait per page of 4 KiB, half of it to unlock")              \
  SETTING(link_to_device_mbps, 0, "10^6 bytes per second of copies to a device; 0: as fast as memcpy")     \
  SETTING(link_to_host_mbps, 0, "the same from a device to host memory")                                   \
  SETTING(copy_engines, 0, "0 or 2: one per direction; 1: one for both")                                   \
  SETTING(pageable_copy_mbps, 0, "pageable copies pass one buffer at this rate, then the link; 0: off")    \
  SETTING(coherent, 0, "1: devices reach pageable memory by the host's page tables: no buffer")            \
  SETTING(coherent_copy_mbps, 0, "the rate of their pageable copies; 0: the link's")                       \
  SETTING(file_page_ns, 0, "pageable copies of a mapped file: time per page of 4 KiB, where that is more") \
  SETTING(fail_at, 0, "the n-th counted call from now on fails, once; 0: none")                            \
  SETTING(fail_every, 0, "every n-th counted call fails; 0: none")                                         \
  SETTING(fail_code, 0, "the CUresult of those; 0: 2 (out of memory) where memory is allocated, else 999") \
  SETTING(vmm, 1, "0: devices have no virtual memory management; -1: nor does cuGetProcAddress find it")   \
  SETTING(vmm_granularity, 2LL << 20, "multiple of its memory and its mappings: a power of two")           \
  SETTING(vmm_granularity_recommended, 2LL << 20, "the recommended one; at least the other")               \
  SETTING(vmm_reserve_max, 0, "bytes above which a reservation of addresses is refused; 0: none")          \
  SETTING(vmm_no_range, 0, "1: cuMemGetAddressRange of mapped memory answers not found")                   \
  SETTING(fabric, 0, "1: fabric handles are supported, but not permitted; 2: only their export is not")    \
  SETTING(vmm_exit_line, 0, "1: a line at exit if memory was unmapped under a command or a graph")         \
  SETTING(stale_graphs_fault, 0, "1: a graph faults where its memory was unmapped or other is mapped")     \
  SETTING(rdma, 1, "1: memory can be used by GPUDirect RDMA, virtual memory that was made for it too")     \
  SETTING(rdma_access_fails, 0, "1: but cuMemSetAccess of that answers 999, as under WSL 2")               \
  SETTING(poison, 1, "fill device and pinned memory with 0xDB when it is really freed")                    \
  SETTING(fault, 0, "1: the next kernel gives its context the sticky error 700 instead of running")        \
  SETTING(fault_loses_device, 1, "0: a fault loses its context only, so that a test can make several")     \
  SETTING(teardown, 0, "1: every call answers CUDA_ERROR_DEINITIALIZED")

// name, meaning; 0 by default
#define SIMCUDA_CALL_SETTINGS(SETTING)                                            \
  SETTING(latency_ns, "busy wait in this entry point, more than the others make") \
  SETTING(fail_at, "its n-th call from now on fails, once; 0: none")              \
  SETTING(fail_every, "every n-th of its calls fails; 0: none")                   \
  SETTING(fail_code, "the CUresult of those; 0: as of the setting for all calls")

// name, meaning
#define SIMCUDA_COUNTERS(COUNTER)                                                                    \
  COUNTER(calls, "counted calls: every entry point but look-ups (cuGetProcAddress) and error names") \
  COUNTER(allocs, "successful device, managed and pool allocations")                                 \
  COUNTER(frees, "frees of those that an entry point asked for")                                     \
  COUNTER(pinned_allocs, "successful allocations of pinned host memory")                             \
  COUNTER(pinned_frees, "frees of those")                                                            \
  COUNTER(pageable_bytes, "bytes moved between a device and pageable host memory")                   \
  COUNTER(pinned_bytes, "bytes moved between a device and pinned or registered host memory")         \
  COUNTER(host_copies, "copies with host memory on a side, counted when they are asked for")         \
  COUNTER(calls_in_host_functions, "those of them that were made in a host function, and refused")   \
  COUNTER(syncs, "calls that waited or would have waited: context, stream and event synchronise")    \
  COUNTER(live_allocations, "device, managed and pool allocations that are alive")                   \
  COUNTER(live_bytes, "their bytes, as asked for")                                                   \
  COUNTER(created_bytes, "device memory of cuMemCreate that a handle or a mapping holds")            \
  COUNTER(live_pinned, "pinned host allocations that are alive")                                     \
  COUNTER(live_pinned_bytes, "their bytes")                                                          \
  COUNTER(live_streams, "streams made by cuStreamCreate that are alive")                             \
  COUNTER(live_events, "events that are alive")                                                      \
  COUNTER(faults, "commands with an illegal address: their context has error 700")                   \
  COUNTER(stale_graph_launches, "launches of graphs after their memory was unmapped")                \
  COUNTER(unmapped_in_use, "commands whose virtual memory was unmapped before they were done")       \
  COUNTER(invalidated_captures, "stream captures that an unsafe call has invalidated")

struct Settings {
#define SIMCUDA_FIELD(name, value, meaning) std::atomic<long long> name{value};
  SIMCUDA_SETTINGS(SIMCUDA_FIELD)
#undef SIMCUDA_FIELD
};

struct CallSettings {
#define SIMCUDA_FIELD(name, meaning) std::atomic<long long> name{0};
  SIMCUDA_CALL_SETTINGS(SIMCUDA_FIELD)
#undef SIMCUDA_FIELD
  std::atomic<long long> calls_since_fail_every{0};
};

struct Counters {
#define SIMCUDA_FIELD(name, meaning) std::atomic<long long> name{0};
  SIMCUDA_COUNTERS(SIMCUDA_FIELD)
#undef SIMCUDA_FIELD
};

inline constinit Settings settings;
inline constinit Counters counters;

void read_settings_from_environment();
void read_setting_from_environment(const char* name);

// The settings of an entry point by its exported name. Null: there is no such entry point.
CallSettings* settings_of_call(const std::string& entry_point);

// Spins: a driver call that costs time costs the caller's CPU, and sleeping has a floor of tens of microseconds.
void busy_wait(long long nanoseconds);

}  // namespace simcuda
