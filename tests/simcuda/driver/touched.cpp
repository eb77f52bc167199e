// See touched.hpp.
#include "tests/simcuda/driver/touched.hpp"

#include "tests/simcuda/driver/address_space.hpp"

namespace simcuda {
namespace {

bool may_touch(const Touched& range, int device) {
  for (uintptr_t address = range.begin; address < range.begin + range.bytes;) {
    const Allocation* mapping = driver().allocations.find(address);
    if (!mapping) return true;
    if (!mapping->open_to(device, range.writes)) return false;
    address = mapping->begin + mapping->bytes;
  }
  return true;
}

}  // namespace

void add_touched(std::vector<Touched>& all, const Touched& range) {
  if (range.bytes && is_virtual_address(range.begin)) all.push_back(range);
}

bool may_touch(Locked&, const std::vector<Touched>& all, const Device& device) {
  for (const Touched& range : all)
    if (!may_touch(range, range.device == Touched::kDeviceOfCommand ? device.ordinal : range.device)) return false;
  return true;
}

}  // namespace simcuda
