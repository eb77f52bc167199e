// In a program or a library that links this one: the C interface's functions, which lead to one instance for good, and
// the report at exit where CISTERN_REPORT asks for one. (The shared object to preload has shim/entry_library.cpp and
// shim/lifecycle.cpp instead.)
//
//   the first call -> libcistern.so, preloaded or loaded as a layer, if it knows this copy's functions
//                  -> else this copy: its object stays mapped from then on, for it has memory in the program's hands
//
// The report is registered before main, so it comes after the program's own exit handlers and destructors, but for
// those of libraries that it loaded at start. What lives is judged when exit handlers begin that were registered before
// the first call: memory that a destructor frees after that is none that was lost.
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "pool/heap/region.hpp"
#include "shim/core/core.hpp"
#include "shim/core/fork.hpp"
#include "shim/core/live.hpp"
#include "shim/core/maintenance.hpp"
#include "shim/core/requests.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/judging/judging.hpp"
#include "shim/library/library.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/record.hpp"
#include "shim/process/standard_error.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"
#include "stats/unwind/modules.hpp"

// pthread_atfork registers for an object, and goes with it.
extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* object) noexcept;

namespace cistern {
namespace {

using library::Interface;

constinit std::atomic<const Interface*> bound{nullptr};
constinit std::atomic<bool> claimed{false};
constinit std::atomic<pid_t> reports_in{0};

bool reports() { return !switched_off() && options().writes_asked_for_report(); }

// --- Which instance
const Interface* interface_of(void* handle) {
  using Find = const Interface* (*)();
  const auto find = reinterpret_cast<Find>(dlsym(handle, "cistern_interface"));
  return find ? find() : nullptr;
}

// A layer is loaded where the default scope does not look.
const Interface* interface_of_shared_object() {
  if (const Interface* const found = interface_of(RTLD_DEFAULT)) return found;
  void* const handle = dlopen("libcistern.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
  const Interface* const found = interface_of(handle);
  dlclose(handle);  // it stays all the same
  return found;
}

bool is_understood(const Interface& other) {
  return other.number == library::kInterface && other.bytes >= sizeof(Interface);
}

// --- This copy serves
void keep_mapped() {
  Dl_info here;
  if (dladdr(&bound, &here) && here.dli_fname) dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void in_forked_child() {
  if (reports_in.load()) reports_in = getpid();
  note_forked();
  after_fork_in_child();
  requests_after_fork_in_child();
  live::after_fork_in_child();
  maintenance::note_start();
}

void begin_exit() {
  maintenance::end();
  live::end();
  if (is_recorded()) end_recording();
  if (getpid() != reports_in.load()) return;
  let_kinds_look_back();
  exit_begins();
  judge_at_end(stack_in_use());
}

// Handlers are called in the reverse of the order in which they were registered.
void watch_end() {
  static constinit std::atomic<bool> watched{false};
  if ((reports() || is_recorded() || live::bell() || options().maintenance) && !watched.exchange(true))
    atexit(begin_exit);
}

void on_gpu_state() {
  live::note_gpu_used();
  maintenance::note_start();
  watch_end();
}

void serve() {
  options_are_in_use();
  linked_into_another = true;
  keep_mapped();
  host_pool::start_region();
  if (options().wake == "command") put_sites_to_sleep();
  host::prepare_pool();
  note_recording();
  gpu_state_hook.store(on_gpu_state, std::memory_order_relaxed);
  live::note_start();
  maintenance::note_start();
  __register_atfork(before_fork, after_fork_in_parent, in_forked_child, nullptr);
  watch_end();
  if (options().wake.starts_with("USR"))
    warn_line("CISTERN_WAKE: a program that is linked with Cistern waits for no signal: its call sites are noted");
  if (options().has_gate()) warn_line("CISTERN_FAIL_ON: a program that is linked with Cistern keeps its exit code");
}

// What serve() makes is looked at without locks. But not for ever: the other thread may wait for the loader's lock,
// which this one has, or be gone (a forked child, a signal handler that interrupted it); then nothing is lost but
// samples.
void wait_for_who_serves() {
  constexpr timespec kTick{0, 1'000'000};
  constexpr int kTicksMax = 1000;
  for (int i = 0; i < kTicksMax && !bound.load(std::memory_order_acquire); ++i) nanosleep(&kTick, nullptr);
}

const Interface* choose(const Interface* other) {
  return other && is_understood(*other) ? other : &library::own_interface;
}

[[gnu::cold, gnu::noinline]] const Interface& bind() {
  const Interface* const other = interface_of_shared_object();
  const Interface* const own = &library::own_interface;
  const Interface* const chosen = choose(other);
  if (chosen == own) claimed.exchange(true) ? wait_for_who_serves() : serve();
  const Interface* none = nullptr;
  if (!bound.compare_exchange_strong(none, chosen)) return *none;
  if (other && chosen == own) {
    StringSink line;
    line.print("the program's copy of Cistern ({}) does not know the loaded libcistern.so ({}): each has its own pools",
               own->library_version, other->library_version);
    warn_line(line.text());
  }
  return *chosen;
}

const Interface& instance() {
  const Interface* const chosen = bound.load(std::memory_order_acquire);
  return chosen ? *chosen : bind();
}

const Interface& instance_if_bound() {
  const Interface* const chosen = bound.load(std::memory_order_acquire);
  return chosen ? *chosen : library::own_interface;
}

// --- Start and end
bool in_program() {
  Dl_info here;
  void* map = nullptr;
  return !dladdr1(&bound, &here, &map, RTLD_DL_LINKMAP) || !*static_cast<const link_map*>(map)->l_name;
}

// Of a copy that was never called, the program's own says that there was nothing, unless another one speaks.
void at_exit() {
  const Interface* const chosen = bound.load();
  if (getpid() != reports_in.load()) return;
  if (chosen ? chosen != &library::own_interface : !in_program() || interface_of_shared_object()) return;
  process_ended({"exit", {}, nullptr});
}

void watch_start() {
  pid_t none = 0;
  if (!reports() || !reports_in.compare_exchange_strong(none, getpid())) return;
  note_start_directory(environment_variable);
  note_who_started(environment_variable);
  atexit(at_exit);
}

[[gnu::constructor]] void start() {
  if (switched_off()) return;
  start_clock();
  note_standard_error();
  watch_start();
}

// Options are set before what is done by them: this call alone does not make this copy serve.
cistern_status set_option_here(const char* name, const char* value) {
  const Interface* chosen = bound.load(std::memory_order_acquire);
  if (!chosen) chosen = choose(interface_of_shared_object());
  if (chosen != &library::own_interface) return instance().set_option(name, value);
  const cistern_status status = chosen->set_option(name, value);
  if (status != CISTERN_OK) return status;
  watch_start();
  if (bound.load()) watch_end();
  return status;
}

}  // namespace
}  // namespace cistern

extern "C" {
cistern_status cistern_set_option(const char* name, const char* value) { return cistern::set_option_here(name, value); }

#define LIBRARY_OPTION(result, name, parameters, arguments)
// A program may want the text of an error before it sets an option: this call makes no copy serve either.
#define LIBRARY_TEXT(result, name, parameters, arguments) \
  result cistern_##name parameters { return cistern::instance_if_bound().name arguments; }
#define LIBRARY_CALL(result, name, parameters, arguments) \
  result cistern_##name parameters { return cistern::instance().name arguments; }
#include "shim/symbols/library.def"
}
