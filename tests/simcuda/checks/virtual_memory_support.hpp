// The tests of virtual memory share this: memory that is mapped at neighbouring addresses, and a second context.
#pragma once
#include <dirent.h>

#include <atomic>
#include <fstream>
#include <initializer_list>
#include <memory>

#include "tests/simcuda/checks/driver_test_support.hpp"

constexpr size_t kUnit = size_t{2} << 20;
constexpr CUmemAccessDesc kDeviceZero{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

inline CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

inline CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_CU(CUDA_SUCCESS, cuMemAddressReserve(&address, bytes, 0, 0, 0));
  return address;
}

inline void allow(CUdeviceptr address, size_t bytes, std::initializer_list<int> devices) {
  for (const int device : devices) {
    CUmemAccessDesc access = kDeviceZero;
    access.location.id = device;
    EXPECT_CU(CUDA_SUCCESS, cuMemSetAccess(address, bytes, &access, 1));
  }
}

// Handles of one unit each, mapped at neighbouring addresses for device 0. The destructor unmaps those that still are.
struct Mapped {
  explicit Mapped(size_t units, const CUmemAllocationProp& wanted = on_device(0)) : handles(units) {
    address = reserve(bytes());
    for (size_t index = 0; index < units; ++index) {
      EXPECT_CU(CUDA_SUCCESS, cuMemCreate(&handles[index], kUnit, &wanted, 0));
      EXPECT_CU(CUDA_SUCCESS, cuMemMap(address + index * kUnit, kUnit, 0, handles[index], 0));
    }
    allow(address, bytes(), {0});
  }
  ~Mapped() {
    for (size_t index = 0; index < handles.size(); ++index) {
      cuMemUnmap(address + index * kUnit, kUnit);
      cuMemRelease(handles[index]);
    }
    EXPECT_CU(CUDA_SUCCESS, cuMemAddressFree(address, bytes()));
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  size_t bytes() const { return handles.size() * kUnit; }

  CUdeviceptr address = 0;
  std::vector<CUmemGenericAllocationHandle> handles;
};

// Another context, current for as long as it lives.
struct InContext {
  explicit InContext(int device) { EXPECT_CU(CUDA_SUCCESS, cuCtxCreate_v2(&context, 0, device)); }
  ~InContext() { EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(context)); }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  CUcontext context = nullptr;
};

// A stream whose work waits, until it may go on.
struct Held {
  explicit Held(CUstream stream) : in(stream) {
    const auto wait = [](void* state) { static_cast<std::atomic<bool>*>(state)->wait(true); };
    EXPECT_CU(CUDA_SUCCESS, cuLaunchHostFunc(in, wait, &held));
  }
  ~Held() {
    go_on();
    cuStreamSynchronize(in);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void go_on() const {
    held = false;
    held.notify_all();
  }
  const CUstream in;
  mutable std::atomic<bool> held{true};
};

inline int open_descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

// The committed memory of this process that is in files.
inline size_t shared_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssShmem:", 0) == 0) return std::stoul(line.substr(9));
  return 0;
}

class VirtualMemory : public Driver {
 protected:
  void TearDown() override {
    for (const char* setting : {"vmm_reserve_max", "vmm_no_range", "rdma_access_fails", "fabric", "stale_graphs_fault"})
      simcuda_set(setting, 0);
    for (const char* setting : {"vmm", "rdma"}) simcuda_set(setting, 1);
    for (const char* setting : {"vmm_granularity", "vmm_granularity_recommended"})
      simcuda_set(setting, static_cast<long long>(kUnit));
    Driver::TearDown();
  }
  template <typename Value>
  static Value attribute(CUpointer_attribute which, CUdeviceptr address) {
    Value value{};
    EXPECT_CU(CUDA_SUCCESS, cuPointerGetAttribute(&value, which, address));
    return value;
  }
  static int device_attribute(CUdevice_attribute which) {
    int value = -1;
    EXPECT_CU(CUDA_SUCCESS, cuDeviceGetAttribute(&value, which, 0));
    return value;
  }
};
