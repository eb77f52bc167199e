// Kernels: the definitions that programs gave, and the handles by which they launch them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"
#include "tests/simcuda/simcuda.h"

namespace simcuda {

// A copy of what the program said, with the storage that it points to.
struct KernelDefinition {
  simcuda_kernel kernel;
  std::string name;
  std::vector<size_t> argument_bytes;
};

// Null: unknown. What was returned stays valid.
const KernelDefinition* find_kernel_by_name(const char* name);

// A CUfunction or CUkernel: the driver's interface lets one stand for the other.
struct Function {
  const KernelDefinition* definition = nullptr;
  const void* container = nullptr;  // its module or library
};

Function* find_function(Locked&, const void* handle);
// The handle of a kernel in a module or library; the same one at each call.
Function* function_in(Locked&, const void* container, const char* name);
void drop_functions_of(Locked&, const void* container);
void drop_modules_of(Locked&, Context& context);

// Copies the arguments now, as a launch does [documented]. Empty work: the arguments are given in a refused form.
Task launch_task(Locked&, const Function& function, void** arguments, Context* context);

}  // namespace simcuda
