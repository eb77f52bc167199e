// The C interface as libcistern.so exports it, and its table, for copies that are linked into programs.
#include "shim/cuda/gather.hpp"
#include "shim/library/library.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"

extern "C" {

#define LIBRARY_CALL(result, name, parameters, arguments)     \
  result cistern_##name parameters {                          \
    cistern::cuda::before_call(cistern::cuda::Sent::library); \
    return cistern::library::name arguments;                  \
  }
#include "shim/symbols/library.def"

CISTERN_API const cistern::library::Interface* cistern_interface() {
  if (cistern::options().gather) cistern::cuda::stop_gathering(cistern::cuda::GatherOff::linked);
  return &cistern::library::own_interface;
}

// For the Python package: whether what the program allocates is seen, and not only what it asks of Cistern.
CISTERN_API int cistern_sees_program() {
  return cistern::preloaded.load(std::memory_order_relaxed) && !cistern::switched_off();
}
}
