// See family.hpp.
#include "shim/process/family.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <iterator>
#include <string_view>

#include "pool/base/folder.hpp"
#include "pool/base/private_descriptor.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

constexpr char kFileName[] = "cistern-verdicts";
constexpr std::string_view kLinkText = "/memfd:cistern-verdicts (deleted)";
constexpr std::size_t kFileBytes = 4096;
constexpr int kGenerationsMax = 64;

// What all processes of a family have mapped. Of another version of Cistern it is not theirs.
struct Verdicts {
  std::uint32_t gate;  // which one: its options, as a hash
  std::array<std::atomic<std::uint32_t>, kOutcomes> counts;
};
static_assert(sizeof(Verdicts) <= kFileBytes && std::atomic<std::uint32_t>::is_always_lock_free);

constinit Verdicts* verdicts = nullptr;

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

class Digits {
 public:
  explicit Digits(int number) : end_(std::to_chars(text_, std::end(text_), number).ptr) {}
  operator std::string_view() const { return {text_, static_cast<std::size_t>(end_ - text_)}; }

 private:
  char text_[16];
  const char* const end_;
};

FilePath path_of(pid_t process, std::string_view rest) {
  FilePath path("/proc/");
  path.add(Digits(process));
  path.add(rest);
  return path;
}

// 0: not to be had. The name before it may hold anything but ends with the last parenthesis.
pid_t parent_in(const char* stat_file) {
  const SmallFile<512> file(stat_file);
  const std::string_view all = file.text();
  const std::size_t name_end = all.rfind(") ");
  pid_t parent = 0;
  if (name_end != all.npos && name_end + 4 < all.size())
    std::from_chars(all.data() + name_end + 4, all.data() + all.size(), parent);
  return parent;
}

// -1: of no file, for this process and what it forks.
Verdicts* map(int file) {
  const int how = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  const long mapped = system_call(SYS_mmap, 0, kFileBytes, PROT_READ | PROT_WRITE, word(how), word(file), 0);
  return mapped > 0 || mapped < -4095 ? reinterpret_cast<Verdicts*>(mapped) : nullptr;
}

// Its file, mapped, where that is the file of a family of the same gate.
Verdicts* mapped_from(const FilePath& descriptor, std::uint32_t gate) {
  char link[64];
  const ssize_t bytes = readlink(descriptor.text(), link, sizeof link);
  if (bytes < 0 || std::string_view(link, static_cast<std::size_t>(bytes)) != kLinkText) return nullptr;
  const int file = open(descriptor.text(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  Verdicts* const found = map(file);
  close_it(file);
  if (!found || found->gate == gate) return found;
  munmap(found, kFileBytes);
  return nullptr;
}

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

// Among the descriptors that the folder names. False: it names none.
bool look_in(const FilePath& folder, std::uint32_t gate, Verdicts*& found) {
  return visit_names_in(folder, [&](std::string_view name) {
    FilePath path = folder;
    path.add("/");
    path.add(name);
    return (found = mapped_from(path, gate)) != nullptr;
  });
}

// A main thread that ended before the others has no descriptors any more; theirs are the process's.
Verdicts* family_of(pid_t process, std::uint32_t gate) {
  Verdicts* found = nullptr;
  if (look_in(path_of(process, "/fd"), gate, found)) return found;
  const FilePath threads = path_of(process, "/task");
  visit_names_in(threads, [&](std::string_view thread) {
    FilePath folder = threads;
    folder.add("/");
    folder.add(thread);
    folder.add("/fd");
    return look_in(folder, gate, found);
  });
  return found;
}

// By the numbers that /proc has, from our own on: in a container it may be that of the outside.
Verdicts* family_of_parents(std::uint32_t gate) {
  pid_t process = parent_in("/proc/self/stat");
  for (int generation = 0; process > 0 && generation < kGenerationsMax; ++generation) {
    if (Verdicts* const found = family_of(process, gate)) return found;
    process = parent_in(path_of(process, "/stat").text());
  }
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
  if (made) made->gate = gate;
  if (file >= 0 && (!made || file < *std::prev(std::end(kPrivateDescriptors)))) close_it(file);
  return made;
}

}  // namespace

void join_family(const Options& options) {
  const Uncounted uncounted;
  const std::uint32_t gate = gate_number(options);
  verdicts = family_of_parents(gate);
  if (verdicts) return;
  verdicts = found_family(gate);
  is_head_of_family = verdicts;
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
