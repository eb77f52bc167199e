// Whether a launcher of parallel jobs (mpirun, srun) started this process, and what its ranks have in common.
#pragma once
#include <string>

namespace cistern::command {

bool in_ranks();
bool is_first_rank();
// The same for all ranks of a job.
std::string job_name();

}  // namespace cistern::command
