// The program that a command runs in the end: names are looked up, scripts and `env` are followed.
#pragma once
#include "shim/doctor/environment.hpp"
#include "shim/doctor/findings.hpp"
#include "shim/doctor/system.hpp"

namespace cistern::doctor {

struct Followed {
  Start start;              // the command of the user
  String file;              // the file whose code runs in the end; empty: there is none, and a finding says why
  Environment environment;  // its variables
};

Followed follow(char** command, const Environment& environment, Findings& findings);

// Whether a library can be preloaded into a program, so that its loader can be asked what it would load.
bool can_be_preloaded_into(const String& file, Findings& findings);

}  // namespace cistern::doctor
