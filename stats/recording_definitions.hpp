// What the events of a recording name by number: kinds, call sites and threads. Each is written down before the first
// event that has it.
#pragma once
#include "stats/recording.hpp"

namespace cistern::recording {

// Nothing is done for what the file knows. Where there is no room, or a thread forks, the file does not come to know
// it, or with a later event. Not under the lock of a slot.
void define_kind(const Kind& kind);
void define_site(SiteId site);
void define_thread(std::uint32_t thread);

void forget_definitions_in_child();

}  // namespace cistern::recording
