// What the driver and its first device call themselves.
#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

void run() {
  open_device();
  char name[256] = "";
  int version = 0, major = 0, minor = 0, count = 0;
  PROBE_MUST(driver().cuDeviceGetName(name, sizeof name - 1, 0));
  PROBE_MUST(driver().cuDriverGetVersion(&version));
  PROBE_MUST(driver().cuDeviceGetCount(&count));
  PROBE_MUST(driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  PROBE_MUST(driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  detail("device", {{"device", name},
                    {"driver", std::to_string(version)},
                    {"devices", std::to_string(count)},
                    {"compute_capability", std::to_string(major) + "." + std::to_string(minor)}});
}

const Registration device_case({"device", "the driver and its first device", 60, {}, run});

}  // namespace
}  // namespace probe
