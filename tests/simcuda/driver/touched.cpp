// See touched.hpp.
#include "tests/simcuda/driver/touched.hpp"

#include <algorithm>

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

struct InFlight {
  MarkerPointer done;
  std::vector<Touched> touched;

  bool touches(uintptr_t begin, uintptr_t end) const {
    return std::any_of(touched.begin(), touched.end(),
                       [&](const Touched& range) { return range.begin < end && begin < range.begin + range.bytes; });
  }
};

std::vector<InFlight>& in_flight() {
  static auto& all = *new std::vector<InFlight>;
  return all;
}

void forget_done() {
  std::erase_if(in_flight(), [](const InFlight& command) { return command.done->done(); });
}

}  // namespace

void add_touched(Locked&, std::vector<Touched>& all, const Touched& range) {
  if (!range.bytes || !is_virtual_address(range.begin)) return;
  const uintptr_t end = range.begin + range.bytes;
  for (Touched part = range; part.begin < end; part.begin += part.bytes) {
    const Allocation* mapping = driver().allocations.find(part.begin);
    const uintptr_t part_end = mapping ? std::min(end, mapping->begin + mapping->bytes) : end;
    part.bytes = part_end - part.begin;
    part.block_id = mapping ? mapping->block_id : 0;
    all.push_back(part);
  }
}

bool is_other_memory(Locked&, const std::vector<Touched>& all) {
  return std::any_of(all.begin(), all.end(), [](const Touched& part) {
    const Allocation* mapping = driver().allocations.find(part.begin);
    return part.block_id && (!mapping || mapping->block_id != part.block_id);
  });
}

bool may_touch(Locked&, const std::vector<Touched>& all, const Device& device) {
  for (const Touched& range : all)
    if (!may_touch(range, range.device == Touched::kDeviceOfCommand ? device.ordinal : range.device)) return false;
  return true;
}

// Commands that are done are forgotten only where the list would grow, so noting one costs little.
void note_in_flight(Locked&, const std::vector<Touched>& all, const MarkerPointer& done) {
  if (all.empty()) return;
  if (in_flight().size() == in_flight().capacity()) forget_done();
  in_flight().push_back({done, all});
}

long long count_in_flight_on(Locked&, uintptr_t begin, size_t bytes) {
  forget_done();
  return std::count_if(in_flight().begin(), in_flight().end(),
                       [&](const InFlight& command) { return command.touches(begin, begin + bytes); });
}

}  // namespace simcuda
