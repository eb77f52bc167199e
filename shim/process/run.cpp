// See run.hpp.
#include "shim/process/run.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "pool/base/forked.hpp"
#include "pool/base/path.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/other_processes.hpp"

namespace cistern {
namespace {

constexpr std::string_view kShells[] = {"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox"};
// Cut to what the kernel keeps of a process's name.
constexpr std::string_view kLaunchers[] = {
    "sh",       "bash",     "dash",      "zsh",         "ksh",       "fish",
    "busybox",  "timeout",  "env",       "nice",        "ionice",    "chrt",
    "time",     "nohup",    "setsid",    "stdbuf",      "taskset",   "numactl",
    "faketime", "fakeroot", "unshare",   "nsenter",     "setpriv",   "prlimit",
    "chroot",   "flock",    "script",    "runuser",     "sudo",      "su",
    "strace",   "ltrace",   "gdb",       "perf",        "xvfb-run",  "dbus-run-sessio",
    "bwrap",    "tini",     "dumb-init", "docker-init", "catatonit", "systemd-run",
    "unbuffer", "nsys",     "ncu",       "coreutils",   "choom",     "catchsegv",
    "entr",     "watch",    "hyperfine"};
constexpr std::string_view kBatchLaunchers[] = {"xargs",    "make", "gmake", "ninja", "ctest",
                                                "parallel", "just", "cmake", "find"};
constexpr std::string_view kStartAnew[] = {"entr", "watch", "hyperfine"};
constexpr std::string_view kShellOptionsOfFiles[] = {"--rcfile", "--init-file"};

// The clock of process starts and that of files are both coarser than it takes to start a program.
constexpr std::int64_t kClocksDifferNs = 15'000'000;

constinit bool noted = false, own_path = false, main_of_run = false, launches_others = false, in_batch = false,
               has_launched = false;
constinit pid_t run_began_by = 0;
constinit std::int64_t run_began_ns = 0;  // 0: not to be had

template <std::size_t count>
bool has(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Takes it off.
std::string_view next_of(std::string_view& arguments) {
  const std::string_view next = arguments.substr(0, arguments.find('\0'));
  arguments.remove_prefix(std::min(next.size() + 1, arguments.size()));
  return next;
}

LauncherKind launcher_kind(pid_t process) {
  const ProgramNames names = program_of(process);
  const LauncherKind by_file = launcher_kind(names.file), by_name = launcher_kind(names.process);
  return {by_file.launches || by_name.launches, by_file.in_batches || by_name.in_batches};
}

// A program that launches in batches may run without Cistern, and the processes that it starts are one run all the
// same.
pid_t first_of_batch(pid_t process) {
  pid_t first = process;
  for (Starters starter(process); starter && *starter > 1; ++starter) {
    const LauncherKind kind = launcher_kind(*starter);
    if (!kind.launches || begins_runs(program_of(*starter).file, text_about(*starter, "cmdline"))) break;
    if (kind.in_batches) first = *starter;
  }
  return first;
}

}  // namespace

[[gnu::cold]] LauncherKind launcher_kind(std::string_view program) {
  const bool in_batches = has(kBatchLaunchers, program) || launches_ranks(program);
  return {in_batches || has(kLaunchers, program), in_batches};
}

[[gnu::cold]] bool begins_runs(std::string_view program, std::string_view arguments) {
  if (has(kStartAnew, program)) return true;
  if (!has(kShells, program)) return false;
  next_of(arguments);  // its name
  while (!arguments.empty()) {
    const std::string_view option = next_of(arguments);
    const bool is_long = option.starts_with("--");
    if (!option.starts_with('-') && !option.starts_with('+')) return false;
    if (!is_long && option.find('c') != option.npos) return false;
    const bool has_value = is_long ? has(kShellOptionsOfFiles, option) : option.find_first_of("oO") != option.npos;
    if (has_value) next_of(arguments);
  }
  return true;
}

[[gnu::cold]] bool lists_cistern(std::string_view libraries) {
  while (!libraries.empty()) {
    const std::size_t end = std::min(libraries.find_first_of(": "), libraries.size());
    if (basename_of(libraries.substr(0, end)).starts_with("libcistern")) return true;
    libraries.remove_prefix(std::min(end + 1, libraries.size()));
  }
  return false;
}

[[gnu::cold]] void note_run(Getenv getenv) {
  noted = true;
  const char* const path = getenv("CISTERN_REPORT");
  own_path = path && std::string_view(path).find("%p") != std::string_view::npos;
  launches_others = launcher_kind(kThisProcess).launches;
  main_of_run = true;
  in_batch = false;
  pid_t first = kThisProcess;
  for (Starters starter(first); starter && is_of_same_run(*starter, getenv); ++starter) {
    const LauncherKind kind = launcher_kind(*starter);
    main_of_run = main_of_run && kind.launches;
    in_batch = in_batch || kind.in_batches;
    first = *starter;
  }
  if (!own_path) first = first_of_batch(first);
  run_began_by = first == kThisProcess ? getpid() : first;
  run_began_ns = started_at_ns(first);
}

[[gnu::cold]] void note_forked_from_run() { set_in_child(main_of_run, false); }

// A judgement makes a child, too.
[[gnu::cold]] void note_what_was_launched() {
  static constinit bool looked = false;
  if (!launches_others || std::exchange(looked, true)) return;
  rusage usage{};
  system_call(SYS_getrusage, static_cast<std::uintptr_t>(RUSAGE_CHILDREN), reinterpret_cast<std::uintptr_t>(&usage));
  has_launched = usage.ru_maxrss > 0;
}

[[gnu::cold]] bool is_main_of_run() { return own_path || (main_of_run && !has_launched); }

[[gnu::cold]] bool speaks_for_run() { return started_by_user() || (is_main_of_run() && !in_batch); }

[[gnu::cold]] std::optional<bool> is_from_before_run(const struct stat& file, pid_t writer) {
  if (!noted || !run_began_ns) return {};
  const std::int64_t written_ns = file.st_mtim.tv_sec * std::int64_t{1'000'000'000} + file.st_mtim.tv_nsec;
  if (written_ns < run_began_ns - kClocksDifferNs) return true;
  return written_ns < run_began_ns + kClocksDifferNs && writer < run_began_by;
}

}  // namespace cistern
