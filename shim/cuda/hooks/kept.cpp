// See kept.hpp.
#include "shim/cuda/hooks/kept.hpp"

#include <algorithm>

#include "shim/process/misuse.hpp"

namespace cistern::cuda {

void InUse::add(Context& context) {
  if (first_ == &context || std::find(more_.begin(), more_.end(), &context) != more_.end()) return;
  first_ ? more_.push_back(&context) : void(first_ = &context);
  context.own_calls.fetch_add(1);
  for (int wait = 0; context.ending.load() && wait < CallGate::kWaitsMax; ++wait) {
    context.own_calls.fetch_sub(1);
    usleep(CallGate::kWaitMicroseconds);
    context.own_calls.fetch_add(1);
  }
}

void InUse::leave() {
  first_->own_calls.fetch_sub(1);
  for (Context* const context : more_) context->own_calls.fetch_sub(1);
}

bool refuses_named(CudaState& s, const Named& named, CUdeviceptr address, const char* driver_name) {
  const Context* const current = s.contexts.current();
  if (!current || current->poisoned.load(std::memory_order_relaxed)) return false;
  if (named.what == Named::not_there) return true;
  const char* const api = api_name(driver_name);
  report_use_of_freed(api, address,
                      {.allocated = named.block->site, .freed = named.block->freed_site, .used = site_of_call(s, api)});
  return true;
}

}  // namespace cistern::cuda
