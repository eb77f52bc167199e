// See kept.hpp.
#include "shim/cuda/hooks/kept.hpp"

#include "shim/process/misuse.hpp"

namespace cistern::cuda {

bool refuses_kept(CudaState& s, const Block& kept, CUdeviceptr address, const char* driver_name) {
  const Context* const current = s.contexts.current();
  if (!current || current->poisoned.load(std::memory_order_relaxed)) return false;
  const char* const api = api_name(driver_name);
  report_use_of_freed(api, address, {.allocated = kept.site, .freed = kept.freed_site, .used = capture(s, api)});
  return true;
}

}  // namespace cistern::cuda
