// See copy_crew.hpp.
#include "shim/process/copy_crew.hpp"

#include <algorithm>

#include "shim/process/process.hpp"

namespace cistern {
namespace {

constinit staging::CopyCrew the_crew;
constinit Lock configure_lock;
constinit std::atomic<bool> configured{false};

void configure() {
  Locked hold(configure_lock);
  if (configured.load(std::memory_order_relaxed)) return;
  const std::uint64_t most = staging::CopyCrew::kHelpersMost;
  staging::CopyCrew::Settings settings;
  settings.helpers_max = static_cast<unsigned>(std::min(options().staging_threads, most));
  the_crew.configure(settings);
  configured.store(true, std::memory_order_release);
}

}  // namespace

staging::CopyCrew& copy_crew() {
  if (!configured.load(std::memory_order_acquire)) configure();
  return the_crew;
}

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
