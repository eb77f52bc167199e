// See devices.hpp.
#include "shim/opencl/devices.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "shim/opencl/next.hpp"

namespace cistern::opencl {
namespace {

// Programs that cut a device in ever new parts are asked about each time.
constexpr std::size_t kKnownMax = 64;

template <class Value>
std::optional<Value> ask(cl_device_id device, cl_uint name) {
  Value value = 0;
  if (next().clGetDeviceInfo.own(device, name, sizeof value, &value, nullptr) != kSuccess) return std::nullopt;
  return value;
}

String name_of(cl_device_id device) {
  char name[128] = {};
  const auto& ask = next().clGetDeviceInfo;
  std::size_t bytes = 0;
  if (ask.own(device, kDeviceName, 0, nullptr, &bytes) != kSuccess || bytes > sizeof name ||
      ask.own(device, kDeviceName, bytes, name, nullptr) != kSuccess)
    return {};
  return name;
}

DeviceFacts ask_for_facts(cl_device_id device) {
  const auto type = ask<cl_bitfield>(device, kDeviceType);
  const auto unified = ask<cl_uint>(device, kDeviceHostUnifiedMemory);
  return {.device = device,
          .name = name_of(device),
          .memory_bytes = ask<std::uint64_t>(device, kDeviceGlobalMemSize).value_or(0),
          .in_host_memory = unified.value_or(1) != 0 || (type.value_or(0) & kDeviceTypeCpu)};
}

}  // namespace

DeviceFacts Devices::facts_of(cl_device_id device) {
  const auto find = [&] {
    return std::find_if(known_.begin(), known_.end(), [&](const DeviceFacts& one) { return one.device == device; });
  };
  {
    Locked hold(lock_);
    if (const auto known = find(); known != known_.end()) return *known;
  }
  DeviceFacts facts = ask_for_facts(device);
  Locked hold(lock_);
  if (known_.size() < kKnownMax && find() == known_.end()) known_.push_back(facts);
  return facts;
}

Vector<DeviceFacts> Devices::all_of(cl_context context) {
  Vector<DeviceFacts> facts;
  std::size_t bytes = 0;
  const auto& ask = next().clGetContextInfo;
  if (ask.own(context, kContextDevices, 0, nullptr, &bytes) != kSuccess) return facts;
  Vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  if (ask.own(context, kContextDevices, bytes, devices.data(), nullptr) != kSuccess) return facts;
  for (const cl_device_id device : devices) facts.push_back(facts_of(device));
  return facts;
}

DeviceGroup* Devices::of(cl_context context) {
  Vector<DeviceFacts> devices = all_of(context);
  if (devices.empty()) return nullptr;
  Locked hold(lock_);
  const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const DeviceGroup* group) {
    return std::equal(group->devices.begin(), group->devices.end(), devices.begin(), devices.end(),
                      [](const DeviceFacts& a, const DeviceFacts& b) { return a.device == b.device; });
  });
  if (same != groups_.end()) return *same;
  if (groups_.size() == kKnownMax) return nullptr;
  return groups_.emplace_back(new (internal_allocate(sizeof(DeviceGroup))) DeviceGroup{.devices = std::move(devices)});
}

bool DeviceGroup::uses_host_memory() const {
  return std::any_of(devices.begin(), devices.end(), [](const DeviceFacts& one) { return one.in_host_memory; });
}

void Devices::forget_figures_in_child() {
  for (DeviceGroup* group : groups_) {
    new (&group->counters) PartCounters;
    group->contexts_created = 0;
  }
}

}  // namespace cistern::opencl
