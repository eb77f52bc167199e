// cuInit, the one Driver, and its device and pinned memory.
#include "tests/simcuda/driver/driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/pool.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

constinit std::atomic<bool> initialized{false};
constinit std::atomic<bool> forked{false};
constinit std::atomic<bool> torn_down{false};

// [documented] CUDA does not survive fork. [assumed] A child of an initialised process gets error 3.
void note_fork() { forked = initialized.load(); }

// [measured] The driver ends in an exit handler of its own (580 on an H100): handlers that were registered before the
// driver came, and destructors of the program, run after it and are answered CUDA_ERROR_DEINITIALIZED. Handlers that
// were registered after cuInit run before it. [assumed] cuInit registers it.
void note_end() {
  torn_down = true;
  const long long commands = counters.unmapped_in_use, launches = counters.stale_graph_launches;
  if (settings.vmm_exit_line && (commands || launches))
    std::fprintf(stderr, "simcuda: memory was unmapped under %lld commands, and before %lld launches of graphs on it\n",
                 commands, launches);
}

// Addresses for four times the memory: fragmentation alone never fails an allocation, as pages can be remapped in a
// real device [assumed].
constexpr size_t kWindowFactor = 4;
constexpr size_t kPinnedWindowBytes = size_t{64} << 30, kPinnedWindowBytesMin = size_t{1} << 30;

// Under valgrind a process has fewer addresses: then the window is smaller.
bool open_pinned_window(AddressWindow& window) {
  for (size_t bytes = kPinnedWindowBytes; bytes >= kPinnedWindowBytesMin; bytes /= 2)
    if (window.open(bytes, false)) return true;
  return false;
}

CUresult initialize(Locked& lock) {
  if (initialized) return CUDA_SUCCESS;
  read_settings_from_environment();
  Driver& state = driver();
  if (settings.devices <= 0) return CUDA_ERROR_NO_DEVICE;
  if (!open_pinned_window(state.pinned)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (int ordinal = 0; ordinal < settings.devices; ++ordinal) {
    auto device = std::make_unique<Device>();
    device->ordinal = ordinal;
    device->bytes = static_cast<size_t>(settings.memory.load());
    device->granule = std::max(kGranule, static_cast<size_t>(settings.granule.load()));
    if (!device->window.open(round_up(device->bytes * kWindowFactor, size_t{2} << 20), true))
      return CUDA_ERROR_OUT_OF_MEMORY;
    device->primary = new Context;
    device->primary->device = device.get();
    device->primary->primary = true;
    device->default_pool = device->pool = make_default_pool(lock, *device);
    state.devices.push_back(std::move(device));
  }
  pthread_atfork(nullptr, nullptr, note_fork);
  std::atexit(note_end);
  initialized = true;
  return CUDA_SUCCESS;
}

}  // namespace

Driver& driver() {
  static Driver& only = *new Driver;
  return only;
}

ProcessState process_state() {
  if (torn_down || settings.teardown) return ProcessState::kTornDown;
  if (forked) return ProcessState::kForked;
  return initialized ? ProcessState::kReady : ProcessState::kNotInitialized;
}

uintptr_t take_device_memory(Locked&, Device& device, size_t bytes) {
  const size_t rounded = round_up(bytes, device.granule);
  if (rounded < bytes || rounded > device.bytes - device.used) return 0;
  const uintptr_t address = device.window.take(rounded);
  if (address) device.used += rounded;
  return address;
}

void give_device_memory(Locked&, Device& device, uintptr_t address, size_t bytes) {
  const size_t rounded = round_up(bytes, device.granule);
  device.window.give(address, rounded);
  device.used -= rounded;
}

void poison_and_give(Locked& lock, const Allocation& allocation) {
  const bool pinned = allocation.kind == MemoryKind::kPinned;
  Device& device = *driver().devices[static_cast<size_t>(allocation.device)];
  AddressWindow& window = pinned ? driver().pinned : device.window;
  const size_t rounded = round_up(allocation.bytes, kGranule);
  if (settings.poison) {
    lock.unlock();
    window.poison(allocation.begin, rounded);
    lock.lock();
  }
  if (pinned)
    window.give(allocation.begin, rounded);
  else
    give_device_memory(lock, device, allocation.begin, rounded);
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuInit(unsigned flags) {
  SIMCUDA_CALL(kBeforeInit | kContextless);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  return initialize(lock);
}

extern "C" CUresult cuDriverGetVersion(int* version) {
  SIMCUDA_CALL(kBeforeInit | kContextless);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
