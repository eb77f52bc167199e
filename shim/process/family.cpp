// See family.hpp.
#include "shim/process/family.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <iterator>
#include <string_view>

#include "pool/base/folder.hpp"
#include "pool/base/private_descriptor.hpp"
#include "shim/process/other_processes.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

constexpr char kFileName[] = "cistern-verdicts";
constexpr std::string_view kLinkText = "/memfd:cistern-verdicts (deleted)";
constexpr std::size_t kFileBytes = 4096;

// The page that all processes of a family map. Processes with another version of Cistern do not share it.
struct Verdicts {
  std::uint32_t gate;  // a hash of the gate's options
  pid_t head;          // by the number that it knows
  std::atomic<std::uint32_t> joined;
  std::array<std::atomic<std::uint32_t>, kOutcomes> counts;
};
static_assert(sizeof(Verdicts) <= kFileBytes && std::atomic<std::uint32_t>::is_always_lock_free);

constinit Verdicts* verdicts = nullptr;
constinit int file_of_head = -1;  // for who looks for it among the head's descriptors

// FNV-1a
std::uint32_t gate_number(const Options& options) {
  std::uint32_t hash = 2166136261u;
  const auto mix = [&hash](std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ static_cast<std::uint8_t>(value)) * 16777619u;
  };
  mix(sizeof(Verdicts));
  for (const auto& bytes_min : options.fail_on.bytes_min) mix(bytes_min ? *bytes_min + 1 : 0);
  if (!options.fail_on)
    for (const char letter : options.gate_fault) mix(static_cast<std::uint8_t>(letter));
  return hash;
}

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::uintptr_t word(int number) { return static_cast<std::uintptr_t>(number); }
void close_it(int file) { system_call(SYS_close, word(file)); }

// -1: of no file, for this process and what it forks.
Verdicts* map(int file) {
  const int how = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  const long mapped = system_call(SYS_mmap, 0, kFileBytes, PROT_READ | PROT_WRITE, word(how), word(file), 0);
  return mapped > 0 || mapped < -4095 ? reinterpret_cast<Verdicts*>(mapped) : nullptr;
}

bool is_of_family(const FilePath& descriptor) {
  char link[64];
  const long bytes = system_call(SYS_readlinkat, word(AT_FDCWD), word(descriptor.text()), word(link), sizeof link);
  return bytes >= 0 && std::string_view(link, static_cast<std::size_t>(bytes)) == kLinkText;
}

Verdicts* mapped_from(const FilePath& descriptor) {
  if (!is_of_family(descriptor)) return nullptr;
  const int file = open(descriptor.text(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  Verdicts* const found = map(file);
  close_it(file);
  return found;
}

void unmap(Verdicts* of_others) { munmap(of_others, kFileBytes); }

// Calls `visit` with every name in the folder until it returns true. False: there is no name.
template <class Visit>
bool visit_names_in(const FilePath& folder_path, Visit visit) {
  const int folder = open(folder_path.text(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  bool any = false;
  visit_names(folder, [&](const char* name) {
    any = true;
    return visit(std::string_view(name));
  });
  close_it(folder);
  return any;
}

// Among the descriptors that the folder names, the first of which `is_it` is true. False: it names none.
template <class IsIt>
bool look_in(const FilePath& folder, Verdicts*& found, IsIt is_it) {
  return visit_names_in(folder, [&](std::string_view name) {
    FilePath path = folder;
    path.add("/");
    path.add(name);
    Verdicts* const mapped = mapped_from(path);
    if (mapped && !is_it(*mapped, name)) return unmap(mapped), false;
    return (found = mapped) != nullptr;
  });
}

// A main thread that ended before the others has no descriptors any more; theirs are the process's.
Verdicts* family_of(pid_t process, std::uint32_t gate) {
  Verdicts* found = nullptr;
  const auto has_the_gate = [gate](const Verdicts& of, std::string_view) { return of.gate == gate; };
  if (look_in(path_about(process, "fd"), found, has_the_gate)) return found;
  const FilePath threads = path_about(process, "task");
  visit_names_in(threads, [&](std::string_view thread) {
    FilePath folder = threads;
    folder.add("/");
    folder.add(thread);
    folder.add("/fd");
    look_in(folder, found, has_the_gate);
    return found != nullptr;
  });
  return found;
}

void set_flags(int file, int flags) { system_call(SYS_fcntl, word(file), F_SETFD, word(flags)); }

// The verdicts that the program before an exec handed over. Verdicts of another gate are not used.
Verdicts* family_of_program_before(std::uint32_t gate) {
  Verdicts* found = nullptr;
  look_in(path_about(kThisProcess, "fd"), found, [](const Verdicts& of, std::string_view descriptor) {
    std::from_chars(descriptor.data(), descriptor.data() + descriptor.size(), file_of_head);
    return of.head == getpid();
  });
  if (!found) return nullptr;
  set_flags(file_of_head, FD_CLOEXEC);
  if (found->gate == gate) return found;
  close_it(file_of_head);
  unmap(found);
  return nullptr;
}

Verdicts* family_of_parents(std::uint32_t gate) {
  for (Starters starter(kThisProcess); starter; ++starter)
    if (Verdicts* const found = family_of(*starter, gate)) return found->joined.fetch_add(1), found;
  return nullptr;
}

// A longer file than the process may write would raise SIGXFSZ.
bool may_make_file() {
  rlimit limit{};
  return system_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, word(&limit)) == 0 && limit.rlim_cur >= kFileBytes;
}

// -1: none is to be had.
int make_file() {
  constexpr std::uintptr_t kCloseOnExec = 1, kNeverExecuted = 8;  // MFD_CLOEXEC, MFD_NOEXEC_SEAL
  if (!may_make_file()) return -1;
  long made = system_call(SYS_memfd_create, word(kFileName), kCloseOnExec | kNeverExecuted);
  if (made == -EINVAL) made = system_call(SYS_memfd_create, word(kFileName), kCloseOnExec);  // before 6.3
  const int file = keep_apart(made);
  if (file < 0 || system_call(SYS_ftruncate, word(file), kFileBytes) == 0) return file;
  close_it(file);
  return -1;
}

// A descriptor that would be in the program's way is closed: then, as without a file, only forked children are of the
// family.
Verdicts* found_family(std::uint32_t gate) {
  const int file = make_file();
  Verdicts* const made = map(file);
  if (made) made->gate = gate, made->head = getpid();
  if (file < 0) return made;
  if (made && file >= *std::prev(std::end(kPrivateDescriptors)))
    file_of_head = file;
  else
    close_it(file);
  return made;
}

// A program that starts without Cistern would see a descriptor that it did not open.
bool is_preloaded_by(char* const* environment) {
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  for (; environment && *environment; ++environment)
    if (std::string_view(*environment).starts_with(kPreload)) return (*environment)[kPreload.size()] != '\0';
  return false;
}

// A child that has not joined yet counts too.
bool has_others() {
  constexpr std::uintptr_t kAnyProcess = 0;  // P_ALL
  return verdicts->joined.load() > 0 ||
         system_call(SYS_waitid, kAnyProcess, 0, 0, WEXITED | WNOHANG | WNOWAIT | __WALL, 0) == 0;
}

}  // namespace

void join_family(const Options& options) {
  const Uncounted uncounted;
  const std::uint32_t gate = gate_number(options);
  verdicts = family_of_program_before(gate);
  if (!verdicts && (verdicts = family_of_parents(gate))) return;
  if (!verdicts) verdicts = found_family(gate);
  is_head_of_family = verdicts;
}

void family_after_fork_in_child() {
  if (is_head_of_family) verdicts->joined.fetch_add(1);
  is_head_of_family = false;
}

// The program may have closed the descriptor, and have a file of its own there.
int hand_over_family(char* const* environment) {
  FilePath descriptor = path_about(kThisProcess, "fd/");
  char number[16];
  descriptor.add(
      {number, static_cast<std::size_t>(std::to_chars(number, std::end(number), file_of_head).ptr - number)});
  if (!is_preloaded_by(environment) || !has_others() || !is_of_family(descriptor)) return kNotHandedOver;
  set_flags(file_of_head, 0);
  return file_of_head;
}

void keep_family(int handed_over) {
  if (handed_over != kNotHandedOver) set_flags(handed_over, FD_CLOEXEC);
}

void count_in_family(Outcome outcome) {
  if (verdicts && !is_head_of_family) verdicts->counts[static_cast<std::size_t>(outcome)].fetch_add(1);
}

FamilyFigures verdicts_of_others() {
  FamilyFigures figures;
  if (!is_head_of_family) return figures;
  for (std::size_t i = 0; i < kOutcomes; ++i) figures.counts[i] = verdicts->counts[i].load();
  return figures;
}

}  // namespace cistern
