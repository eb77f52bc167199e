// See environment.hpp.
#include "shim/process/environment.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "pool/base/file_status.hpp"
#include "pool/base/forked.hpp"
#include "pool/base/process_start.hpp"
#include "shim/process/other_processes.hpp"
#include "shim/process/run.hpp"

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

// Cut to what the kernel keeps of a name.
constexpr char kLaunchingPrograms[][16] = {"mpirun", "mpiexec", "orterun",         "orted", "prterun",
                                           "prte",   "prted",   "hydra_pmi_proxy", "srun",  "slurmstepd"};

constinit char* start_directory = nullptr;
constinit bool by_user = true, shared_path = true, complains = false;

std::optional<int> number(const char* text) {
  const std::string_view digits = text ? text : "";
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) return {};
  return value;
}

// The launcher whose variables give the rank; null: there is none.
const RankVariables* launcher_of(Getenv getenv) {
  for (const RankVariables& launcher : kLaunchers)
    if (number(getenv(launcher.rank))) return &launcher;
  return nullptr;
}

String decimal(int number) {
  char digits[16];
  return {digits, std::to_chars(digits, std::end(digits), number).ptr};
}

// `entry`: "NAME=value"
bool has_entry(std::string_view entries, String entry) {
  entry.push_back('\0');
  const std::size_t at = entries.find(entry);
  return at != entries.npos && (at == 0 || entries[at - 1] == '\0');
}

bool has_entry(std::string_view entries, std::string_view name, const char* value) {
  return has_entry(entries, String(name) + "=" + (value ? value : ""));
}

// Launchers add libraries of their own: faketime, fakeroot.
bool brings_cistern(std::string_view environment, Getenv getenv) {
  for (const char* variable : {"LD_PRELOAD", "OPENCL_LAYERS"}) {
    const char* const here = getenv(variable);
    if (!here || !lists_cistern(here)) continue;
    const std::string_view there = value_in(environment, variable);
    return lists_cistern(there) || there == here;
  }
  return false;
}

}  // namespace

[[gnu::cold]] int read_file(const char* path, std::size_t bytes_max, String& text) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (file == -1) return errno;
  int error = 0;
  while (text.size() < bytes_max) {
    char part[4096];
    const ssize_t bytes = read(file, part, std::min(sizeof part, bytes_max - text.size()));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) error = errno;
    if (bytes <= 0) break;
    text.append(part, static_cast<std::size_t>(bytes));
  }
  close(file);
  return error;
}

const char* environment_variable(const char* name) {
  if (started_with_more_rights()) return nullptr;
  const std::size_t length = strlen(name);
  for (char** entry = early_environment(); entry && *entry; ++entry)
    if (!strncmp(*entry, name, length) && (*entry)[length] == '=') return *entry + length + 1;
  return nullptr;
}

char** early_environment() { return environ ? environ : start_environment(); }

bool ask_switched_off() {
  const char* value = environment_variable("CISTERN");
  return value && parse_on_off(value) == false;
}

Ranks read_ranks(Getenv getenv) {
  const RankVariables* const launcher = launcher_of(getenv);
  if (!launcher) return {};
  return {number(getenv(launcher->rank)), launcher->ranks ? number(getenv(launcher->ranks)) : std::nullopt};
}

[[gnu::cold]] bool dies_with_other_ranks(Getenv getenv) {
  return number(getenv("OMPI_COMM_WORLD_SIZE")).value_or(1) > 1;
}

// With what tells several of them on one system apart: mpirun.openmpi, mpiexec.hydra.
[[gnu::cold]] bool launches_ranks(std::string_view program) {
  program = program.substr(0, program.find_first_of(".\n"));
  return std::find(std::begin(kLaunchingPrograms), std::end(kLaunchingPrograms), program) !=
         std::end(kLaunchingPrograms);
}

[[gnu::cold]] bool launches_ranks() {
  String name;
  read_file("/proc/self/comm", sizeof kLaunchingPrograms[0], name);
  return launches_ranks(name);
}

[[gnu::cold]] String host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name) != 0) return "localhost";
  name[HOST_NAME_MAX] = '\0';
  return name;
}

void note_start_directory(Getenv getenv) {
  const auto is_relative = [getenv](const char* option) {
    const char* const path = getenv(option);
    return path && *path && *path != '/';
  };
  if (!is_relative("CISTERN_REPORT") && !is_relative("CISTERN_SUPPRESSIONS")) return;
  char directory[PATH_MAX];
  if (!getcwd(directory, sizeof directory)) return;
  const std::size_t bytes = strlen(directory) + 1;
  start_directory = static_cast<char*>(memcpy(internal_allocate(bytes), directory, bytes));
}

void note_who_started(Getenv getenv) {
  const char* const report = getenv("CISTERN_REPORT");
  const std::string_view path = report ? report : "";
  shared_path = path.find("%p") != path.npos;
  if (path.empty() || path == "none" || path == "stderr") return;
  int error = 0;
  // One whose parent is another user's was not started by hand; but in a container /proc may be that of the outside,
  // where its parent's number is another process's.
  by_user = shared_path || !is_of_same_run(parent_of(kThisProcess), getenv, &error);
  if (error == EACCES || error == EPERM) by_user = own_number_in_proc() != getpid();
  note_run(getenv);
}

[[gnu::cold]] bool is_of_same_run(pid_t starter, Getenv getenv, int* error) {
  const char* const report = getenv("CISTERN_REPORT");
  const std::string_view path = report ? report : "";
  if (path.find("%p") != path.npos) return false;
  // Launchers have the ranks' path and preload too, and where they are ranks themselves even a rank.
  const bool of_ranks = path.find("%r") != path.npos;
  if (of_ranks && launches_ranks(text_about(starter, "comm"))) return false;
  const String environment = environment_of(starter, error);
  const RankVariables* const launcher = of_ranks ? launcher_of(getenv) : nullptr;
  if (launcher && !has_entry(environment, launcher->rank, getenv(launcher->rank))) return false;
  return has_entry(environment, "CISTERN_REPORT", report) && brings_cistern(environment, getenv) &&
         !begins_runs(program_of(starter).file, text_about(starter, "cmdline"));
}

// Its parent would have said what it complains about.
[[gnu::cold]] void note_complaints() {
  const String parent = environment_of(parent_of(kThisProcess));
  complains = false;
  for (char** entry = early_environment(); entry && *entry && !complains; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("CISTERN_") || text.starts_with("LD_PRELOAD=")) complains = !has_entry(parent, String(text));
  }
}

bool complains_in_silence() { return complains; }

void note_forked() {
  set_in_child(by_user, shared_path);
  note_forked_from_run();
  set_in_child(complains, false);
}

bool started_by_user() { return by_user; }

[[gnu::cold]] bool starters_have_the_same(int descriptor) {
  struct stat here, there;
  if (status_of_file(descriptor, here)) return false;
  const char* const report = environment_variable("CISTERN_REPORT");
  for (Starters starter(kThisProcess); starter; ++starter) {
    if (!has_entry(environment_of(*starter), "CISTERN_REPORT", report)) return true;
    const String path = "/proc/" + decimal(*starter) + "/fd/" + decimal(descriptor);
    if (status_of_file(path.c_str(), there) || here.st_dev != there.st_dev || here.st_ino != there.st_ino) return false;
  }
  return true;
}

[[gnu::cold]] String from_start_directory(const String& path) {
  if (path.starts_with('/') || !start_directory || start_directory[0] != '/') return path;
  return String(start_directory) + "/" + path;
}

}  // namespace cistern
