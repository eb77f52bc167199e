// A program that asks the runtime for functions of the driver by name, as it may for those of a later toolkit: what
// nobody has heard of, and what is a further version of a function that is known, is in the report; not what is known
// and has nothing to do with memory, nor what the driver does not have.
// harness: simulator-only
// harness: unknown=cuMemInvent,cuMemPrefetchAsync of CUDA 14.0
#include "../program.hpp"

static void ask(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status{};
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status);
  say("%s of %u: %s, status %d, found %s", name, version, name_of(code), static_cast<int>(status),
      yes_no(function != nullptr));
}

int main() {
  NEED(cudaFree(device_block(1000)));
  for (int round = 0; round < 2; ++round) ask("cuMemInvent", 14000);
  for (unsigned version : {8000, 12020, 13000, 14000}) ask("cuMemPrefetchAsync", version);
  ask("cuMemAlloc", 14000);
  ask("cuDeviceGetName", 13000);
  ask("cuTexObjectCreate", 13000);
  ask("cuMemInvent", 13000);
  ask("cuThatNeverWas", 14000);
  return finish();
}
