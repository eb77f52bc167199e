// See host_lane.hpp.
#include "shim/process/host_lane.hpp"

#include <time.h>

#include "pool/base/system_call.hpp"
#include "shim/process/copy_crew.hpp"
#include "shim/process/touchable.hpp"

namespace cistern {

bool HostLane::may_touch(const staging::Side& side, const staging::Box& box) {
  return cistern::may_touch(side, box, !to_device_);
}

void HostLane::copy(const staging::Side& to, const staging::Side& from, const staging::Box& box) {
  copy_crew().copy(to, {from.base, from.row_pitch, from.slice_pitch}, box,
                   to_device_ ? staging::Direction::to_device : staging::Direction::to_host);
}

void HostLane::pause(unsigned looks) {
  constexpr unsigned kSpins = 100;
  if (looks < kSpins) return;
  constexpr timespec kShort{0, 5'000};
  system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kShort));
}

}  // namespace cistern
