// Device memory that the driver takes for itself: code and globals of modules, executable graphs, heaps and stacks of
// contexts. Nobody has an address in it: it is only missing.
#pragma once
#include <memory>

#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {

class OwnMemory {
 public:
  // Null: the device has not so much left, even without what its memory pools keep unused.
  static std::shared_ptr<OwnMemory> take(Locked& lock, Device& device, size_t bytes);
  // As much as the setting `overhead` says, which may be nothing.
  static std::shared_ptr<OwnMemory> take_overhead(Locked& lock, Device& device);
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

 private:
  OwnMemory(Device& device, size_t bytes) : device_(device), bytes_(bytes) {}

  Device& device_;
  size_t bytes_;
};

}  // namespace simcuda
