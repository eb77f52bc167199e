// See doctor.hpp. In the order in which a process comes to be: the program, what is preloaded into it, what its loader
// makes of that, what it finds when it runs.
#include "shim/doctor/doctor.hpp"

#include "shim/doctor/loading.hpp"
#include "shim/doctor/observed.hpp"
#include "shim/doctor/program.hpp"
#include "shim/doctor/surroundings.hpp"
#include "shim/doctor/system.hpp"

namespace cistern::doctor {
namespace {

bool names_our_layer(const Environment& environment) {
  bool found = false;
  for_each_part(environment.get("OPENCL_LAYERS"), ":", [&](std::string_view part) {
    found |= part.find("cistern") != part.npos || what_is(String(part)) == Cistern::to_preload;
  });
  return found;
}

// Whether the program's loader can be asked.
bool examine_preload(const Followed& followed, Findings& findings) {
  const bool possible = can_be_preloaded_into(followed.file, findings);
  if (!followed.environment.has("LD_PRELOAD")) {
    findings.problem("env removes LD_PRELOAD: set it after env's options, as in env -i LD_PRELOAD=" + own_path());
    return possible;
  }
  const int before = findings.problems();
  const String cistern = examine_preload_list(followed.environment, findings);
  if (possible && findings.problems() == before)
    examine_loading(followed.file, cistern, followed.environment, findings);
  return possible;
}

}  // namespace

int examine(const Question& question) {
  Findings findings;
  Environment environment(question.environment);
  const bool layer_alone = !environment.has("LD_PRELOAD") && names_our_layer(environment);
  if (!environment.has("LD_PRELOAD") && !layer_alone) {
    environment.set("LD_PRELOAD=" + own_path());
    findings.note("LD_PRELOAD is not set: examined with LD_PRELOAD=" + own_path());
  }
  const Followed followed = follow(question.command, environment, findings);
  if (followed.file.empty()) return 1;
  const bool can_be_asked = layer_alone || examine_preload(followed, findings);
  const bool is_on = examine_options(followed.environment, findings);
  if (can_be_asked) {
    if (examine_layers(followed.file, followed.environment, layer_alone, findings) == Layer::loaded && layer_alone)
      findings.note("with the layer alone, only OpenCL memory is seen");
    examine_drivers(followed.file, followed.environment, findings);
  }
  examine_limits(followed.environment, findings);
  if (question.run && is_on) observe(followed.start, layer_alone ? Way::layer : Way::preload, findings);
  return findings.problems() ? 1 : 0;
}

}  // namespace cistern::doctor
