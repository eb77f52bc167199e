// Runs the program under the preload and says what became of it and of its children.
#pragma once
#include "shim/doctor/findings.hpp"
#include "shim/doctor/system.hpp"

namespace cistern::doctor {

// `start.environment` has the preload, or the layer, that is asked about. The program has our standard streams.
enum class Way : std::uint8_t { preload, layer };
void observe(const Start& start, Way way, Findings& findings);

}  // namespace cistern::doctor
