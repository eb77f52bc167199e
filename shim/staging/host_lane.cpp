// See host_lane.hpp.
#include "shim/staging/host_lane.hpp"

#include <time.h>

#include "pool/base/system_call.hpp"
#include "pool/heap/pages.hpp"
#include "shim/staging/copy_crew.hpp"
#include "shim/staging/touchable.hpp"

namespace cistern {

bool HostLane::may_touch(const staging::Side& side, const staging::Box& box) {
  if (guarded(side, box) != staging::Guarded::neither) return staging::guarded_copies_are_allowed();
  return cistern::may_touch(side, box, !to_device_);
}

bool HostLane::copy(const staging::Side& to, const staging::Side& from, const staging::Box& box) {
  const bool alone = to_device_ && !ahead_.reads(from.base, from.base + staging::span_bytes(from, box), *this);
  const bool copied =
      copy_crew().copy(to, {from.base, from.row_pitch, from.slice_pitch}, box,
                       to_device_ ? staging::Direction::to_device : staging::Direction::to_host,
                       guarded(to_device_ ? from : to, box), alone ? staging::Helped::no : staging::Helped::yes);
  if (turn_) turn_->progressed();
  return copied;
}

// Blocks of the host pool stay where they are while the program uses them. Another thread may unmap or protect all
// other memory, or cut it off its file, during a copy.
staging::Guarded HostLane::guarded(const staging::Side& programs, const staging::Box& box) const {
  const char* const last = programs.base + staging::span_bytes(programs, box) - 1;
  if (host_pool::is_in_window(programs.base) && host_pool::is_in_window(last)) return staging::Guarded::neither;
  return to_device_ ? staging::Guarded::source : staging::Guarded::target;
}

void HostLane::pause(unsigned looks) {
  constexpr unsigned kSpins = 100;
  if (looks < kSpins) return;
  constexpr timespec kShort{0, 5'000};
  system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kShort));
}

}  // namespace cistern
