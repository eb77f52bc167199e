// See serving.hpp. Asked inside malloc, from the loader's first one on: so the environment is read directly, and
// nothing here allocates.
#include "shim/host/serving.hpp"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "pool/heap/threads.hpp"
#include "shim/host/counters.hpp"
#include "shim/host/native.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/log.hpp"
#include "shim/process/options.hpp"

namespace cistern::host {
namespace {

constinit std::atomic<Serving> decided{Serving::undecided};

// Whoever is asked for the owner of malloc may allocate, and we are asked who serves that: the pool, for once.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool deciding = false;

// M_PERTURB, in the environment: every fresh block is to hold a certain byte, every freed one another.
bool is_to_perturb() {
  const char* value = environment_variable("MALLOC_PERTURB_");
  if (value && strtoul(value, nullptr, 0)) return true;
  const char* tunables = environment_variable("GLIBC_TUNABLES");
  constexpr std::string_view kName = "glibc.malloc.perturb=";
  const char* perturb = tunables ? strstr(tunables, kName.data()) : nullptr;
  return perturb && strtoul(perturb + kName.size(), nullptr, 0);
}

Serving decide() {
  switch (native_owner()) {
    case Owner::other:
      count_nothing();
      return Serving::aside;
    case Owner::behind_us:
      return Serving::native;
    case Owner::us:
      break;
  }
  if (switched_off()) return Serving::native;
  if (!early_environment()) return Serving::undecided;
  const char* value = environment_variable("CISTERN_HOST_POOL");
  return (value && parse_on_off(value) == false) || is_to_perturb() ? Serving::native : Serving::pool;
}

}  // namespace

Serving serving() {
  Serving now = decided.load(std::memory_order_relaxed);
  if (now == Serving::undecided && !deciding) [[unlikely]] {
    deciding = true;
    now = decide();
    deciding = false;
    decided.store(now, std::memory_order_relaxed);
  }
  return now;
}

void leave_to_c_library() {
  Serving expected = Serving::pool;
  if (decided.compare_exchange_strong(expected, Serving::native)) host_pool::end_heap();
}

void say_who_serves() {
  if (serving() != Serving::aside) return;
  const link_map* const module = owning_module();
  String line("host memory is served by ");
  line.append(module ? module->l_name : "the program itself or its debugger").append(": neither pooled nor counted");
  warn_later(line);
}

bool abort_on_misuse() {
  const char* value = environment_variable("CISTERN_HOST_MISUSE");
  return !value || std::string_view(value) != "continue";
}

}  // namespace cistern::host
