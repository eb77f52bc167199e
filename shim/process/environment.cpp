// See environment.hpp.
#include "shim/process/environment.hpp"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <charconv>

extern "C" void* __libc_stack_end;

namespace cistern {
namespace {

struct RankVariables {
  const char* rank;
  const char* ranks;  // null: the launcher does not say
};
constexpr RankVariables kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                        {"PMI_RANK", "PMI_SIZE"},
                                        {"PMIX_RANK", nullptr},
                                        {"SLURM_PROCID", "SLURM_NTASKS"}};

constinit char* start_directory = nullptr;

std::optional<int> number(const char* text) {
  const std::string_view digits = text ? text : "";
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) return {};
  return value;
}

}  // namespace

// Not secure_getenv: the same, but in a part of the C library that few programs touch.
const char* environment_variable(const char* name) {
  if (getauxval(AT_SECURE)) return nullptr;
  if (environ) return getenv(name);
  const std::size_t length = strlen(name);
  for (char** entry = early_environment(); entry && *entry; ++entry)
    if (!strncmp(*entry, name, length) && (*entry)[length] == '=') return *entry + length + 1;
  return nullptr;
}

// What the process was started with: the number of arguments, those, a null, the environment.
char** early_environment() {
  if (environ || !__libc_stack_end) return environ;
  char** const arguments = static_cast<char**>(__libc_stack_end) + 1;
  const auto count = *static_cast<const long*>(__libc_stack_end);
  return count >= 0 && !arguments[count] ? arguments + count + 1 : nullptr;
}

bool ask_switched_off() {
  const char* value = environment_variable("CISTERN");
  return value && parse_on_off(value) == false;
}

Ranks read_ranks(Getenv getenv) {
  for (const RankVariables& launcher : kLaunchers) {
    const std::optional<int> rank = number(getenv(launcher.rank));
    if (rank) return {rank, launcher.ranks ? number(getenv(launcher.ranks)) : std::nullopt};
  }
  return {};
}

[[gnu::cold]] String host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name) != 0) return "localhost";
  name[HOST_NAME_MAX] = '\0';
  return name;
}

void note_start_directory(Getenv getenv) {
  const char* report = getenv("CISTERN_REPORT");
  if (!report || !*report || *report == '/') return;
  char directory[PATH_MAX];
  if (!getcwd(directory, sizeof directory)) return;
  const std::size_t bytes = strlen(directory) + 1;
  start_directory = static_cast<char*>(memcpy(internal_allocate(bytes), directory, bytes));
}

[[gnu::cold]] String from_start_directory(const String& path) {
  if (path.starts_with('/') || !start_directory || start_directory[0] != '/') return path;
  return String(start_directory) + "/" + path;
}

}  // namespace cistern
