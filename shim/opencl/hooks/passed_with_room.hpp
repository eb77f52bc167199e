// A call of the driver that takes memory which the pool does not give: it fails only if it does so without the pool
// too. What the pool keeps makes way for it, and it is made again.
#pragma once
#include "shim/opencl/out_of_memory.hpp"
#include "shim/process/process.hpp"

namespace cistern::opencl {

template <class Call>
auto with_room(OpenclState& s, Call call) {
  return phase() == Phase::running ? s.pool.with_room(call) : call();
}

// `create(errcode)` tells its error through a pointer that is never null.
template <class Create>
auto create_with_room(const Asked& asked, cl_int* errcode, Create create) {
  cl_int own = kSuccess;
  cl_int* error = errcode ? errcode : &own;
  const auto try_once = [&] {
    auto made = create(error);
    return Acquired<decltype(made), cl_int>{made, *error, made != nullptr};
  };
  const auto made = with_room(state(), try_once).chunk;
  if (!made && is_out_of_memory(*error, asked)) report_out_of_memory(state(), asked, *error);
  return made;
}

// A driver that gives memory to a buffer at its first command says there that it has none: the command is not enqueued.
template <class Enqueue>
cl_int enqueue_with_room(OpenclState& s, Enqueue enqueue) {
  const auto try_once = [&] {
    const cl_int error = enqueue();
    return Acquired<bool, cl_int>{true, error, error != kMemObjectAllocationFailure};
  };
  return with_room(s, try_once).error;
}

}  // namespace cistern::opencl
