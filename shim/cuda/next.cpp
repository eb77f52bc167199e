// See next.hpp.
#include "shim/cuda/next.hpp"

#include <string.h>

#include <algorithm>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/unknown.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::cuda {
namespace {

constexpr char kDriverName[] = "libcuda.so.1";
constexpr std::uint64_t kPerThreadStream = 2;

constinit DriverTable the_table{};
constinit Lock resolve_lock;
constinit std::atomic<bool> resolved{false};
constinit std::atomic<std::uint64_t> answered{0}, substituted{0};

enum class Stream : std::uint8_t { any, legacy, per_thread };

struct Row {
  const char* base;
  int version;
  Stream stream;
  void* hook;
  void (*keep)(void* real);
};

constexpr int kRowCount = 0
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) +1
#include "shim/symbols/cuda.def"
    ;
// Sorted by name at first use; equal names by version.
constinit Row rows[kRowCount] = {};

void fill_rows() {
  int i = 0;
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments)      \
  rows[i++] = {#base, version, Stream::stream, reinterpret_cast<void*>(&hook::name), \
               [](void* real) { the_table.name.set(real); }};
#include "shim/symbols/cuda.def"
  std::sort(rows, rows + kRowCount, [](const Row& a, const Row& b) {
    const int order = strcmp(a.base, b.base);
    return order ? order < 0 : a.version < b.version;
  });
}

void resolve_table(DriverTable& table) {
  const auto resolve = [](auto& member, const char* name) {
    if (!member) member.set(real_symbol(name, kDriverName));
  };
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) resolve(table.name, #name);
#include "shim/symbols/cuda.def"
  resolve(table.cuCtxGetCurrent, "cuCtxGetCurrent");
  resolve(table.cuCtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  resolve(table.cuCtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  resolve(table.cuCtxGetDevice, "cuCtxGetDevice");
  resolve(table.cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState");
  resolve(table.cuStreamIsCapturing, "cuStreamIsCapturing");
  resolve(table.cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2");
  resolve(table.cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute");
  resolve(table.cuEventElapsedTime, "cuEventElapsedTime");
  resolve(table.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  resolve(table.cuInit, "cuInit");
  resolve(table.cuDeviceGetCount, "cuDeviceGetCount");
  resolve(table.cuDeviceGet, "cuDeviceGet");
  resolve(table.cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  resolve(table.cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess");
}

// The look-ups take the dynamic linker's lock, so ours is not held meanwhile. Threads that race here find the same.
void resolve_driver() {
  Uncounted uncounted;
  if (!real_symbol("cuMemAlloc_v2", kDriverName)) return;  // it may be loaded later
  resolve_table(the_table);
  Locked hold(resolve_lock);
  if (resolved.load(std::memory_order_acquire)) return;
  fill_rows();
  resolved.store(true, std::memory_order_release);
}

bool serves(const Row& row, std::uint64_t flags) {
  if (row.stream == Stream::any) return true;
  return (row.stream == Stream::per_thread) == ((flags & kPerThreadStream) != 0);
}

// The row with the greatest version that is not above the one asked for.
const Row* find_row(const char* name, int version, std::uint64_t flags) {
  const Row* row = std::lower_bound(rows, rows + kRowCount, name,
                                    [](const Row& a, const char* wanted) { return strcmp(a.base, wanted) < 0; });
  const Row* best = nullptr;
  for (; row != rows + kRowCount && !strcmp(row->base, name); ++row)
    if (row->version <= version && serves(*row, flags)) best = row;
  return best;
}

}  // namespace

DriverTable& driver() {
  if (!resolved.load(std::memory_order_acquire)) [[unlikely]]
    resolve_driver();
  return the_table;
}

bool driver_found() { return driver(), resolved.load(std::memory_order_acquire); }

// Asked for a version between two rows, or beyond the last that is known here, the driver says itself whether it means
// the row's function: asked for the row's own version it answers the same pointer.
void substitute(const char* name, void** function, int version, std::uint64_t flags,
                CUresult (*again)(const char*, void**, int, std::uint64_t)) {
  answered.fetch_add(1, std::memory_order_relaxed);
  if (!name || !function || !*function || !driver_found()) return;
  const Row* row = find_row(name, version, flags);
  if (!row) return note_answered(name, 0);
  if (row->version != version) {
    void* of_row = nullptr;
    if (again(name, &of_row, row->version, flags) != kSuccess || of_row != *function)
      return note_answered(name, version);
  }
  row->keep(*function);
  *function = row->hook;
  substituted.fetch_add(1, std::memory_order_relaxed);
}

void driver_before_fork() { resolve_lock.lock_for_fork(); }
void driver_after_fork() { resolve_lock.unlock_after_fork(); }

LookUps look_ups() { return {answered.load(std::memory_order_relaxed), substituted.load(std::memory_order_relaxed)}; }

}  // namespace cistern::cuda
