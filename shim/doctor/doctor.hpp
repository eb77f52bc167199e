// Says why the memory of a program is, or is not, caught: for the library run as a program (--doctor).
//
// The doctor says only what it has seen: it reads the files that would be loaded, has the program's own loader list
// them, and runs the program only on request. Nothing of it runs in a process that preloads the library.
//
// Room: the doctor.
// May include: pool/base, shim/process, stats.
#pragma once

namespace cistern::doctor {

struct Question {
  char** command;      // the program and its arguments, ended by a null
  char** environment;  // as the program would have it
  bool run;
};

// The exit code: 0: memory will be caught, or was; 1: not, or not all.
int examine(const Question& question);

}  // namespace cistern::doctor
