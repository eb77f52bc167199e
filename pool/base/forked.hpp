// Each page that a forked child writes is copied for it. So it sets only what differs: most children soon call exec,
// or end.
#pragma once

namespace cistern {

// The place may be an atomic.
template <class T, class Value>
void set_in_child(T& place, Value value) {
  if (place != value) place = value;
}

}  // namespace cistern
