// Which program a command runs in the end: names are looked up, scripts and `env` are followed.
#pragma once
#include "shim/doctor/environment.hpp"
#include "shim/doctor/findings.hpp"
#include "shim/doctor/system.hpp"

namespace cistern::doctor {

struct Followed {
  Start start;              // what the user asked to run
  String file;              // whose code runs in the end; empty: none, a finding says why
  Environment environment;  // what it will have
};

Followed follow(char** command, const Environment& environment, Findings& findings);

// What a program must be for anything to be preloaded into it. Whether its loader can be asked what it would load.
bool can_be_preloaded_into(const String& file, Findings& findings);

}  // namespace cistern::doctor
