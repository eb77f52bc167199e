// The surroundings of the program: options, drivers, the OpenCL loader's layers, limits of the system.
#pragma once
#include "shim/doctor/environment.hpp"
#include "shim/doctor/findings.hpp"

namespace cistern::doctor {

// Whether anything is done by them.
bool examine_options(const Environment& environment, Findings& findings);
void examine_drivers(const String& file, const Environment& environment, Findings& findings);
// Whether OPENCL_LAYERS names the object, and the loader that the program gets will look at that.
enum class Layer : std::uint8_t { not_asked, loaded, ignored };
// `alone`: nothing is preloaded.
Layer examine_layers(const String& file, const Environment& environment, bool alone, Findings& findings);
void examine_limits(const Environment& environment, Findings& findings);

}  // namespace cistern::doctor
