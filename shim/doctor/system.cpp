// See system.hpp. Functions of the C library are those that the rest of the object calls anyway: each further one would
// be one more name for the loader to look up in every process.
#include "shim/doctor/system.hpp"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <csignal>

#include "pool/base/folder.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/memory_map.hpp"
#include "stats/format.hpp"

namespace cistern::doctor {
namespace {

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
constexpr auto kHere = static_cast<std::uintptr_t>(AT_FDCWD);
constexpr std::uint64_t kNoExec = 8, kNoSetUserId = 2;  // ST_NOEXEC, ST_NOSUID

int error_of(long answer) { return answer < 0 ? static_cast<int>(-answer) : 0; }

// A null-terminated array of them.
Vector<char*> pointers_to(const Vector<String>& texts) {
  Vector<char*> pointers;
  for (const String& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void write_to(int stream, std::string_view text) {
  while (!text.empty()) {
    const long written = system_call(SYS_write, static_cast<std::uintptr_t>(stream), word(text.data()), text.size());
    if (written == -EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The path of the file that is mapped at `address`; empty: not known.
String path_of_mapping(std::uintptr_t address) {
  const long file = system_call(SYS_openat, kHere, word("/proc/self/maps"), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  String path;
  MappingReader maps(static_cast<int>(file));
  while (const auto mapping = maps.next())
    if (address >= mapping->first && address < mapping->end) path = mapping->path;
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  return path;
}

}  // namespace

void say(std::string_view text) { write_to(STDOUT_FILENO, text); }
void say_error(std::string_view line) { write_to(STDERR_FILENO, line); }

void end(int code) {
  for (;;) system_call(SYS_exit_group, static_cast<std::uintptr_t>(code));
}

String error_text(int error) {
  char text[128];
  return strerror_r(error, text, sizeof text);
}

String number(std::int64_t value) { return decimal(static_cast<double>(value), 0); }

int status_of(const String& path, struct stat& status) {
  return error_of(system_call(SYS_newfstatat, kHere, word(path.c_str()), word(&status), 0));
}

int may_execute(const String& path) { return error_of(system_call(SYS_faccessat, kHere, word(path.c_str()), X_OK)); }

bool exists(const String& path) {
  struct stat status;
  return status_of(path, status) == 0;
}

String text_of(const String& path, std::size_t bytes_max) {
  String text;
  read_file(path.c_str(), bytes_max, text);
  return text;
}

String link_target(const String& path) {
  char target[PATH_MAX];
  const long bytes = system_call(SYS_readlinkat, kHere, word(path.c_str()), word(target), sizeof target);
  return bytes > 0 ? String(target, static_cast<std::size_t>(bytes)) : String();
}

String absolute(const String& path) {
  if (path.starts_with('/')) return path;
  char folder[PATH_MAX];
  const long bytes = system_call(SYS_getcwd, word(folder), sizeof folder);
  if (bytes <= 0) return path;
  std::string_view rest = path;
  while (rest.starts_with("./")) rest.remove_prefix(2);
  return String(folder).append("/").append(rest);
}

String own_path() {
  // Where the loader was run, with us as its program, /proc/self/exe is the loader.
  if (start_value(AT_BASE) == 0) {
    const String mapped = path_of_mapping(reinterpret_cast<std::uintptr_t>(&own_path));
    char** const arguments = start_arguments();
    return mapped.empty() && arguments && *arguments ? absolute(*arguments) : mapped;
  }
  const String path = link_target("/proc/self/exe");
  const auto* const executed = reinterpret_cast<const char*>(start_value(AT_EXECFN));
  return path.empty() && executed ? absolute(executed) : path;  // no /proc
}

bool is_mounted(const String& path, Mounted how) {
  struct statfs file_system;
  if (error_of(system_call(SYS_statfs, word(path.c_str()), word(&file_system)))) return false;
  const std::uint64_t flag = how == Mounted::without_execution ? kNoExec : kNoSetUserId;
  return static_cast<std::uint64_t>(file_system.f_flags) & flag;
}

bool has_file_capabilities(const String& path) {
  char value[64];
  return system_call(SYS_getxattr, word(path.c_str()), word("security.capability"), word(value), sizeof value) > 0;
}

Vector<String> names_in(const String& folder) {
  Vector<String> names;
  const long file = system_call(SYS_openat, kHere, word(folder.c_str()), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return names;
  visit_names(file, [&names](const char* name) {
    names.emplace_back(name);
    return false;
  });
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  return names;
}

MappedFile::MappedFile(const String& path) {
  struct stat status;
  error_ = status_of(path, status);
  if (error_ == 0 && S_ISDIR(status.st_mode)) error_ = EISDIR;
  if (error_ == 0 && !S_ISREG(status.st_mode)) error_ = EINVAL;
  if (error_ != 0 || status.st_size == 0) return;
  const long file = system_call(SYS_openat, kHere, word(path.c_str()), O_RDONLY | O_CLOEXEC);
  error_ = error_of(file);
  if (error_ != 0) return;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const long mapped = system_call(SYS_mmap, 0, bytes, PROT_READ, MAP_PRIVATE, static_cast<std::uintptr_t>(file), 0);
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  if (mapped < 0 && mapped > -4096)
    error_ = error_of(mapped);
  else
    bytes_ = {reinterpret_cast<const char*>(mapped), bytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) system_call(SYS_munmap, word(bytes_.data()), bytes_.size());
}

long start_child(const Start& start, int output) {
  const Vector<char*> arguments = pointers_to(start.arguments), environment = pointers_to(start.environment);
  const long child = system_call(SYS_clone, SIGCHLD);
  if (child != 0) return child;
  if (output != -1)
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
      system_call(SYS_dup3, static_cast<std::uintptr_t>(output), static_cast<std::uintptr_t>(stream));
  system_call(SYS_execve, word(start.file.c_str()), word(arguments.data()), word(environment.data()));
  end(127);
}

Ended output_of(const Start& start) {
  Ended ended{-1, {}};
  int ends[2];
  if (system_call(SYS_pipe2, word(ends), O_CLOEXEC) < 0) return ended;
  const long child = start_child(start, ends[1]);
  system_call(SYS_close, static_cast<std::uintptr_t>(ends[1]));
  char part[4096];
  for (long bytes; child > 0 && (bytes = system_call(SYS_read, static_cast<std::uintptr_t>(ends[0]), word(part),
                                                     sizeof part)) != 0;) {
    if (bytes > 0) ended.output.append(part, static_cast<std::size_t>(bytes));
    if (bytes < 0 && bytes != -EINTR) break;
  }
  system_call(SYS_close, static_cast<std::uintptr_t>(ends[0]));
  if (child > 0) system_call(SYS_wait4, static_cast<std::uintptr_t>(child), word(&ended.status), 0, 0);
  return ended;
}

}  // namespace cistern::doctor
