// See own_memory.hpp.
#include "tests/simcuda/driver/own_memory.hpp"

#include "tests/simcuda/driver/pool.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {

std::shared_ptr<OwnMemory> OwnMemory::take(Locked& lock, Device& device, size_t bytes) {
  const size_t rounded = round_up(bytes, device.granule);
  if (rounded > device.bytes - device.used && release_unused(lock, device)) return take(lock, device, bytes);
  if (rounded > device.bytes - device.used) return nullptr;
  device.used += rounded;
  return std::shared_ptr<OwnMemory>(new OwnMemory(device, rounded));
}

std::shared_ptr<OwnMemory> OwnMemory::take_overhead(Locked& lock, Device& device) {
  return take(lock, device, static_cast<size_t>(settings.overhead.load()));
}

OwnMemory::~OwnMemory() {
  const Locked lock = lock_driver();
  device_.used -= bytes_;
}

}  // namespace simcuda
