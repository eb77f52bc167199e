// See ranks.hpp.
#include "shim/command/ranks.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace cistern::command {
namespace {

// As the reports have it (shim/process/environment.cpp): the first that is a number counts.
std::optional<unsigned> rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    unsigned value;
    if (!text || !*text) continue;
    const char* const end = text + std::strlen(text);
    if (const auto [at, error] = std::from_chars(text, end, value); error == std::errc() && at == end) return value;
  }
  return {};
}

}  // namespace

bool in_ranks() { return rank().has_value(); }
bool is_first_rank() { return rank() == 0; }

std::string job_name() {
  if (const char* const name = std::getenv("PMIX_NAMESPACE"); name && *name) return name;
  if (const char* const job = std::getenv("SLURM_JOB_ID"); job && *job) {
    const char* const step = std::getenv("SLURM_STEP_ID");
    return step && *step ? std::string(job) + "." + step : job;
  }
  return std::to_string(getppid());  // the launcher, where all ranks are on one machine
}

}  // namespace cistern::command
