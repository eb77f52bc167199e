// What is asked of each device once, where a context is made of it: reports come when drivers may be gone.
#pragma once
#include "backends/opencl/api.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "stats/counters.hpp"

namespace cistern::opencl {

struct DeviceFacts {
  cl_device_id device = nullptr;
  String name{};
  std::uint64_t memory_bytes = 0;  // 0: it does not say
  bool in_host_memory = true;      // its objects, or it does not say
};

// Contexts of the same devices. Stays for as long as the process lives.
struct DeviceGroup {
  Vector<DeviceFacts> devices;
  PartCounters counters{};
  Counter contexts_created{0};

  bool uses_host_memory() const;
};

class Devices {
 public:
  // Of a context that was just made. Null: the driver does not say, or there are too many.
  DeviceGroup* of(cl_context context);
  // Asked of the driver once, without a lock.
  DeviceFacts facts_of(cl_device_id device);
  Vector<DeviceGroup*> groups() {
    Locked hold(lock_);
    return groups_;
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_figures_in_child();

 private:
  Vector<DeviceFacts> all_of(cl_context context);

  Lock lock_;
  Vector<DeviceFacts> known_;
  Vector<DeviceGroup*> groups_;
};

}  // namespace cistern::opencl
