// Memory and events that another process opens.
#pragma once
#include "tests/simcuda/driver/event.hpp"

namespace simcuda {

// Gives the event a state that another process can map. False: no memory.
bool make_shared_state(Event& event);

}  // namespace simcuda
