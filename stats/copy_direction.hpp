// The directions of copies, and their names in reports. Recordings have their numbers (shim/doc/recording-format.md).
#pragma once
#include <cstdint>
#include <string_view>

namespace cistern {

enum class CopyDirection : std::uint8_t {
  host_to_device,
  device_to_host,
  device_to_device,
  host_to_host,
  fill,
  unknown,
  count
};

constexpr const char* direction_name(CopyDirection direction) {
  constexpr const char* kNames[] = {"host to device", "device to host", "device to device",
                                    "host to host",   "fill",           "unknown"};
  static_assert(sizeof kNames / sizeof *kNames == static_cast<int>(CopyDirection::count));
  return kNames[static_cast<int>(direction)];
}

// Neither between devices nor where the direction is unknown does the type of the host memory exist.
constexpr bool touches_host(std::string_view direction_name) {
  return direction_name.find("host") != std::string_view::npos;
}

}  // namespace cistern
