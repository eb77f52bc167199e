// See other_processes.hpp.
#include "shim/process/other_processes.hpp"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "pool/base/clock.hpp"
#include "pool/base/folder.hpp"
#include "pool/base/path.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"

namespace cistern {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

// Fields of its line of state, counted as proc(5) counts: the third is the first behind the name, which may hold
// anything but ends with the last parenthesis.
std::int64_t field_of_state(pid_t process, int number) {
  const SmallFile<512> file(path_about(process, "stat").text());
  const std::string_view all = file.text();
  std::size_t at = all.rfind(") ");
  for (int field = 2; field < number && at != all.npos; ++field) at = all.find(' ', at + 1);
  std::int64_t value = 0;
  if (at != all.npos) std::from_chars(all.data() + at + 1, all.data() + all.size(), value);
  return value;
}

// The kernel's: a library may show the program another time.
std::int64_t now_ns(clockid_t clock) { return static_cast<std::int64_t>(clock_ns(clock)); }

}  // namespace

[[gnu::cold]] FilePath path_about(pid_t process, std::string_view file) {
  FilePath path("/proc/");
  char number[16];
  if (process == kThisProcess)
    path.add("self");
  else
    path.add({number, static_cast<std::size_t>(std::to_chars(number, std::end(number), process).ptr - number)});
  path.add("/");
  path.add(file);
  return path;
}

[[gnu::cold]] pid_t own_number_in_proc() {
  char number[16];
  const ssize_t bytes = readlink("/proc/self", number, sizeof number);
  pid_t process = 0;
  if (bytes > 0) std::from_chars(number, number + bytes, process);
  return process;
}

[[gnu::cold]] String text_about(pid_t process, const char* file, int* error) {
  String all;
  const int failed = read_file(path_about(process, file).text(), SIZE_MAX, all);
  if (error) *error = failed;
  return all;
}

[[gnu::cold]] String environment_of(pid_t process, int* error) { return text_about(process, "environ", error); }

[[gnu::cold]] std::string_view value_in(std::string_view environment, std::string_view name) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = environment.substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
    at = end + 1;
  }
  return {};
}

// Those of each of its threads.
[[gnu::cold]] String children_of(pid_t process) {
  const FilePath path = path_about(process, "task");
  String children;
  const long folder = system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD),
                                  reinterpret_cast<std::uintptr_t>(path.text()), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return children;
  visit_names(folder, [&](const char* thread) {
    read_file((String(path.text()) + "/" + thread + "/children").c_str(), SIZE_MAX, children);
    return false;
  });
  system_call(SYS_close, static_cast<std::uintptr_t>(folder));
  return children;
}

[[gnu::cold]] ProgramNames program_of(pid_t process) {
  char file[PATH_MAX] = "";
  const ssize_t bytes = readlink(path_about(process, "exe").text(), file, sizeof file);
  ProgramNames names{String(basename_of({file, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))})),
                     text_about(process, "comm")};
  if (!names.process.empty() && names.process.back() == '\n') names.process.pop_back();
  return names;
}

[[gnu::cold]] pid_t parent_of(pid_t process) { return static_cast<pid_t>(field_of_state(process, 4)); }

[[gnu::cold]] std::int64_t start_ticks(pid_t process) { return field_of_state(process, 22); }

[[gnu::cold]] std::int64_t started_at_ns(pid_t process) {
  const std::int64_t ticks_a_second = static_cast<std::int64_t>(start_value(AT_CLKTCK));
  const std::int64_t ticks = start_ticks(process);
  if (ticks <= 0 || ticks_a_second <= 0) return 0;
  return now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME) + ticks * (kSecondNs / ticks_a_second);
}

}  // namespace cistern
