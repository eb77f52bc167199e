// See copy_crew.hpp.
#include "shim/staging/copy_crew.hpp"

#include <pthread.h>

#include <algorithm>

#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"

namespace cistern {
namespace {

constinit staging::CopyCrew the_crew;
constinit Lock configure_lock;
constinit std::atomic<bool> configured{false};

// The functions that a call of the program's would reach. They are not linked to: most processes start no thread of
// ours, and each name costs the start of all of them.
struct Functions {
  decltype(&pthread_create) create;
  decltype(&pthread_join) join;
  decltype(&pthread_attr_init) attr_init;
  decltype(&pthread_attr_setstacksize) attr_setstacksize;
  decltype(&pthread_attr_destroy) attr_destroy;
};
constinit Functions functions{};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(first_definition(name));
  return function != nullptr;
}

bool find_functions(Functions& functions) {
  return find(functions.create, "pthread_create") && find(functions.join, "pthread_join") &&
         find(functions.attr_init, "pthread_attr_init") &&
         find(functions.attr_setstacksize, "pthread_attr_setstacksize") &&
         find(functions.attr_destroy, "pthread_attr_destroy");
}

int create(pthread_t* thread, std::size_t stack_bytes, void* (*main)(void*), void* of) {
  if (!stack_bytes) return functions.create(thread, nullptr, main, of);
  pthread_attr_t how;
  if (const int error = functions.attr_init(&how)) return error;
  int error = functions.attr_setstacksize(&how, stack_bytes);
  if (!error) error = functions.create(thread, &how, main, of);
  functions.attr_destroy(&how);
  return error;
}

int join(pthread_t thread, void** result) { return functions.join(thread, result); }

// The linker is asked, and perhaps the environment, before the lock is taken.
void configure() {
  Functions found{};
  const bool has_threads = find_functions(found);
  const std::uint64_t most = staging::CopyCrew::kHelpersMost;
  staging::CopyCrew::Settings settings;
  settings.helpers_max = static_cast<unsigned>(std::min(options().staging_threads, most));
  settings.measures_threads = true;
  if (has_threads) settings.threads = {create, join};
  Locked hold(configure_lock);
  if (configured.load(std::memory_order_relaxed)) return;
  functions = found;
  the_crew.configure(settings);
  configured.store(true, std::memory_order_release);
}

}  // namespace

staging::CopyCrew& copy_crew() {
  if (!configured.load(std::memory_order_acquire)) configure();
  return the_crew;
}

std::uint64_t copy_crew_busy_ns() { return the_crew.busy_ns(); }

void stop_copy_crew() { the_crew.stop(); }

void copy_crew_before_fork() {
  configure_lock.lock_for_fork();
  the_crew.before_fork();
}
void copy_crew_after_fork_in_parent() {
  the_crew.after_fork_in_parent();
  configure_lock.unlock_after_fork();
}
void copy_crew_after_fork_in_child() {
  the_crew.after_fork_in_child();
  configure_lock.unlock_after_fork();
}

}  // namespace cistern
