// The C interface as libcistern.so exports it, and its table, for copies that are linked into programs.
#include "shim/cuda/gather.hpp"
#include "shim/library/library.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"

// Where copies are held, calls send them first. These functions stand apart, so that the others keep no arguments over
// a call.
namespace cistern::library::sending {
namespace {

#define LIBRARY_CALL(result, name, parameters, arguments) \
  [[gnu::cold, gnu::noinline]] result name parameters {   \
    cuda::before_call(cuda::Sent::library);               \
    return library::name arguments;                       \
  }
#include "shim/symbols/library.def"

}  // namespace
}  // namespace cistern::library::sending

extern "C" {

#define LIBRARY_CALL(result, name, parameters, arguments)                            \
  result cistern_##name parameters {                                                 \
    if (cistern::cuda::copies_are_held.load(std::memory_order_acquire)) [[unlikely]] \
      return cistern::library::sending::name arguments;                              \
    return cistern::library::name arguments;                                         \
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
