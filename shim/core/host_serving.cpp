// See host_serving.hpp. Asked inside malloc, from the loader's first one on: so the environment is read directly, and
// nothing here allocates.
#include "shim/core/host_serving.hpp"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "shim/core/environment.hpp"
#include "shim/core/host_native.hpp"
#include "shim/core/lookup.hpp"
#include "shim/core/options.hpp"

namespace cistern::host {
namespace {

constinit std::atomic<Serving> decided{Serving::undecided};

// As a library or a layer we interpose nothing, and another allocator is none of our business.
bool interposing() { return module_of(real_dlsym()(RTLD_DEFAULT, "malloc")) == own_module(); }

Serving decide() {
  if (interposing() && brings_own_allocator()) return Serving::native;
  if (!environ) return Serving::undecided;
  const char* value = environment_variable("CISTERN_HOST_POOL");
  return value && parse_on_off(value) == false ? Serving::native : Serving::pool;
}

}  // namespace

Serving serving() {
  Serving now = decided.load(std::memory_order_relaxed);
  if (now == Serving::undecided) [[unlikely]] {
    now = decide();
    decided.store(now, std::memory_order_relaxed);
  }
  return now;
}

bool brings_own_allocator() { return !native_is_c_library(); }

bool abort_on_misuse() {
  const char* value = environment_variable("CISTERN_HOST_MISUSE");
  return !value || std::string_view(value) != "continue";
}

void give_up_pool() { decided.store(Serving::native, std::memory_order_relaxed); }

}  // namespace cistern::host
