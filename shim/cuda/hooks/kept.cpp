// See kept.hpp.
#include "shim/cuda/hooks/kept.hpp"

#include "shim/process/misuse.hpp"

namespace cistern::cuda {

bool refuses_named(CudaState& s, const Named& named, CUdeviceptr address, const char* driver_name) {
  const Context* const current = s.contexts.current();
  if (!current || current->poisoned.load(std::memory_order_relaxed)) return false;
  if (named.what == Named::not_there) return true;
  const char* const api = api_name(driver_name);
  report_use_of_freed(api, address,
                      {.allocated = named.block->site, .freed = named.block->freed_site, .used = capture(s, api)});
  return true;
}

}  // namespace cistern::cuda
