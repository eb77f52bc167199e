// The probe's frame: cases, the rules that each one measures, and how answers leave the process.
// A rule has the answer that the simulated driver assumes; an empty one means that the figure is only measured. All
// assumed answers are those of driver 580 and CUDA 13.0 on an H100 [measured]; another driver may differ.
// Every answer is one line of JSON, flushed at once, so that a crash loses nothing that was measured before it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace probe {

struct Rule {
  std::string name;
  std::string assumed;
};

struct Case {
  const char* name;
  const char* what;
  int seconds;  // the time limit that the caller is asked to set
  std::vector<Rule> rules;
  void (*run)();
};

struct Registration {
  explicit Registration(Case registered);
};

void answer(const std::string& rule, const std::string& measured);
// The same of a call that may end its process: it is made in a child, whose death by a signal is the answer "crashes".
// Before the driver is opened, because it does not survive a fork.
void answer_of_child(const std::string& rule, std::string (*measure)());
void detail(const std::string& topic, const std::vector<std::pair<std::string, std::string>>& fields);

// Takes the samples of one call; `bytes` is 0 where the call has no size.
void cost(const std::string& call, size_t bytes, std::vector<uint64_t> nanoseconds);

// What a CUresult or cudaError_t (the numbers agree where both have one) is called here.
std::string code_name(int code);

uint64_t now_nanoseconds();
void sleep_milliseconds(int milliseconds);
std::string own_folder();

// The rest of the command line after the case's name: a case that starts itself again passes its arguments there.
const std::vector<std::string>& arguments();

inline std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

}  // namespace probe
