// The account of a call that found no memory.
#pragma once
#include "shim/opencl/state.hpp"

namespace cistern::opencl {

// What the program asked for. 0 bytes: the call does not say how many. No api: it does not say why it fails.
struct Asked {
  const char* api;
  cl_context context;
  std::uint64_t bytes;
};

bool is_out_of_memory(cl_int error, const Asked& asked);
// One line on stderr.
void report_out_of_memory(OpenclState& s, const Asked& asked, cl_int error);

}  // namespace cistern::opencl
