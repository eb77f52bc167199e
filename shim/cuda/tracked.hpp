// Memory that is not pooled: passed on, and accounted by its pointer or handle.
#pragma once
#include "backends/cuda/context.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {

// The rows of a report: memory that is told apart there. Those of a device are a row for each device ("device:0"). The
// glossary's family is one of processes (process/family.hpp).
enum class Family : std::uint8_t {
  device,
  pinned,
  managed,
  async,
  graph,
  array,
  vmm,
  host_vmm,
  registered,
  imported,
  count
};
constexpr int kDevicesMax = 64;
// Reports have a kind of it for each device.
constexpr bool per_device(Family family) {
  return family != Family::pinned && family != Family::managed && family != Family::host_vmm &&
         family != Family::registered && family != Family::imported;
}
// Tracked memory that is a device's.
constexpr bool takes_device_memory(Family family) {
  return family == Family::async || family == Family::graph || family == Family::array || family == Family::vmm;
}

inline const void* as_handle(CUdeviceptr pointer) { return reinterpret_cast<const void*>(pointer); }

struct Tracked {
  Family family = Family::device;
  bool inherited = false;
  int device = 0;
  Context* context = nullptr;  // it lives and dies with this one; null: with none
  std::uint32_t epoch = 0;
  std::uint64_t bytes = 0;
  const char* api = "";
  const char* object = "";
  SiteId site = 0;
  std::uint64_t born_ns = 0;
  std::uint32_t references = 1;  // VMM handles
};

}  // namespace cistern::cuda
