// See report_file.hpp. All by the system's own calls, as the status of files is asked.
#include "shim/process/report_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <optional>

#include "pool/base/file_status.hpp"
#include "pool/base/path.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/file_names.hpp"
#include "shim/process/log.hpp"
#include "shim/process/run.hpp"
#include "shim/process/standard_error.hpp"
#include "stats/format.hpp"
#include "stats/report/head.hpp"

namespace cistern {
namespace {

constexpr int kAttempts = 10'000;
constexpr int kLockAttempts = 50;  // of 2 ms
constexpr std::uintptr_t kHere = static_cast<std::uintptr_t>(AT_FDCWD);

std::uintptr_t word(const String& path) { return reinterpret_cast<std::uintptr_t>(path.c_str()); }

int failure_of(long answer) { return answer < 0 ? static_cast<int>(-answer) : 0; }

int open_file(const String& path, int how, int mode = 0) {
  return static_cast<int>(system_call(SYS_openat, kHere, word(path),
                                      static_cast<std::uintptr_t>(how | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW),
                                      static_cast<std::uintptr_t>(mode)));
}

void remove_file(const String& path) { system_call(SYS_unlinkat, kHere, word(path), 0); }

int rename_file(const String& from, const String& to, unsigned flags) {
  return failure_of(system_call(SYS_renameat2, kHere, word(from), kHere, word(to), flags));
}

// 0, or errno: EEXIST where there is something.
using Rename = int (*)(const String& from, const String& to);

// Where the file system lacks the call's flag, this moves `from` over an empty file that it has made itself. A file
// that came to lie at `from` meanwhile is moved, too, and not lost.
int rename_to_free(const String& from, const String& to) {
  const int unsupported = rename_file(from, to, RENAME_NOREPLACE);
  if (unsupported != EINVAL && unsupported != ENOSYS) return unsupported;
  const int made = open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (made < 0) return -made;
  system_call(SYS_close, static_cast<std::uintptr_t>(made));
  const int failure = rename_file(from, to, 0);
  if (failure) remove_file(to);
  return failure;
}

// The same for a file that no other process touches. It is never seen empty where there are links.
int rename_own_to_free(const String& from, const String& to) {
  const int unsupported = rename_file(from, to, RENAME_NOREPLACE);
  if (unsupported != EINVAL && unsupported != ENOSYS) return unsupported;
  const int failure = failure_of(system_call(SYS_linkat, kHere, word(from), kHere, word(to), 0));
  if (!failure) remove_file(from);
  return failure && failure != EEXIST ? rename_to_free(from, to) : failure;
}

int open_regular_file(const String& path) {
  struct stat file;
  const int failure = status_of_link(path.c_str(), file);
  if (failure) return -failure;
  return S_ISREG(file.st_mode) ? open_file(path, O_RDONLY | O_NONBLOCK) : -EEXIST;
}

bool has_no_locks(int failure) {
  return failure == EBADF || failure == ENOLCK || failure == EOPNOTSUPP || failure == ENOSYS;
}

// The file at the path. While this object lives, no other process with Cistern moves the file if that is allowed at
// all: it is a report, in a regular file of this user's that has no other name. An empty file may be one that another
// process has begun to write.
class Found {
 public:
  explicit Found(const String& path) : file_(open_regular_file(path)) {
    if (file_ < 0 || !is_locked(path)) return;
    is_gone_ = !is_still_at(path);
    if (is_gone_ || status_.st_nlink != 1 || status_.st_uid != geteuid()) return;
    char begin[kReportHeadBytes];
    const long bytes = system_call(SYS_pread64, descriptor(), reinterpret_cast<std::uintptr_t>(begin), sizeof begin, 0);
    if (bytes < 0) return;
    head_ = read_report_head({begin, static_cast<std::size_t>(bytes)});
  }
  ~Found() {
    if (file_ >= 0) system_call(SYS_close, descriptor());
  }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;

  // Since it was looked for.
  bool is_gone() const { return is_gone_ || file_ == -ENOENT; }
  const std::optional<ReportHead>& head() const { return head_; }
  const struct stat& status() const { return status_; }

 private:
  std::uintptr_t descriptor() const { return static_cast<std::uintptr_t>(file_); }

  int lock() const {
    const timespec tick{0, 2'000'000};
    int failure = EWOULDBLOCK;
    for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
      failure = failure_of(system_call(SYS_flock, descriptor(), LOCK_EX | LOCK_NB));
      if (failure != EWOULDBLOCK && failure != EINTR) break;
      system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&tick), 0);
    }
    return failure;
  }
  // NFS locks only what is open for writing. On a file system without locks two may come to move the file: no report is
  // lost by that.
  bool is_locked(const String& path) {
    int failure = lock();
    const int writable = failure == EBADF ? open_file(path, O_RDWR | O_NONBLOCK) : -1;
    if (writable >= 0) {
      system_call(SYS_close, descriptor());
      file_ = writable;
      failure = lock();
    }
    return !failure || has_no_locks(failure);
  }
  bool is_still_at(const String& path) {
    struct stat there;
    return !status_of_file(file_, status_) && !status_of_link(path.c_str(), there) && S_ISREG(there.st_mode) &&
           there.st_dev == status_.st_dev && there.st_ino == status_.st_ino;
  }

  int file_;
  struct stat status_ = {};
  bool is_gone_ = false;
  std::optional<ReportHead> head_;
};

using Name = String (*)(std::string_view path, int pid, int attempt);

// Where it went, and 0 or errno.
ReportFile move_to_free(Rename rename, const String& from, const String& path, Name name, int pid) {
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    String free_path = name(path, pid, attempt);
    const int failure = rename(from, free_path);
    if (failure != EEXIST) return {failure, std::move(free_path)};
  }
  return {EEXIST, path};
}

// Writes the report whole under a name that no other process reads.
ReportFile write_apart(const String& path, int pid, std::string_view text) {
  const std::size_t slash = path.rfind('/');
  const String folder = slash == path.npos ? String() : path.substr(0, slash + 1);
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    String apart = folder + path_with_pid(".cistern.part", pid, attempt);
    const int file = open_file(apart, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file == -EEXIST) continue;
    if (file < 0) return {-file, path};
    int failure = write_whole(file, text);
    struct stat status = {};
    status_of_file(file, status);
    const int closed = failure_of(system_call(SYS_close, static_cast<std::uintptr_t>(file)));
    if (!failure) failure = closed;
    if (failure) remove_file(apart);
    return {failure, failure ? path : apart, status.st_dev, status.st_ino};
  }
  return {EEXIST, path};
}

// The process that started first goes first, but one that used GPU memory never gives way to one that used none.
bool goes_before(const Reporter& reporter, const ReportHead& other) {
  if (reporter.used_gpu_memory != other.used_gpu_memory) return reporter.used_gpu_memory;
  return reporter.pid < other.pid;
}

enum class Taken { yes, no, free };
struct Try {
  Taken taken;
  bool beside_own_run;  // no: what stays there is of this run
};

// Moves the file at the path if it gives way.
Try try_to_free(const String& path, const Reporter& reporter) {
  const Found found(path);
  if (found.is_gone()) return {Taken::free, false};
  if (!found.head()) return {Taken::no, false};
  const std::optional<bool> is_earlier = is_from_before_run(found.status(), found.head()->pid);
  const bool gives_way = is_earlier == true ? reporter.used_gpu_memory : goes_before(reporter, *found.head());
  if (!gives_way) return {Taken::no, is_earlier == false};
  const Name name = is_earlier == true ? path_of_earlier : path_with_pid;
  return {move_to_free(rename_to_free, path, path, name, found.head()->pid).failure ? Taken::no : Taken::free, false};
}

// Others may come in between: they lay theirs there, which is looked at again.
Try take_the_path(const String& report, const String& path, const Reporter& reporter) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Try tried = try_to_free(path, reporter);
    if (tried.taken != Taken::free) return tried;
    const int failure = rename_own_to_free(report, path);
    if (failure != EEXIST) return {failure ? Taken::no : Taken::yes, false};
  }
  return {Taken::no, false};
}

const char* what_exists_at(const String& path) {
  struct stat file;
  if (status_of_link(path.c_str(), file)) return "exists";
  return S_ISLNK(file.st_mode)    ? "is a symbolic link"
         : S_ISFIFO(file.st_mode) ? "is a pipe without a reader"
                                  : "exists";
}

void say_where(const String& path, const String& beside) {
  String line = path;
  line.append(" ").append(what_exists_at(path)).append("; the report is in ").append(beside);
  warn_line(line);
}

bool an_argument_names(const String& path) {
  const std::string_view name = basename_of(path);
  char** argument = start_arguments();
  while (argument && *argument)
    if (std::string_view(*argument++).find(name) != std::string_view::npos) return true;
  return false;
}

// Moves a report that lies apart to the path, or to one beside it. From the second step on it is there, whoever is
// killed.
void place(ReportFile& report, const String& path, const Reporter& reporter) {
  const bool wants_path = reporter.used_gpu_memory || is_main_of_run();
  ReportFile placed{wants_path ? rename_own_to_free(report.path, path) : EEXIST, path};
  if (placed.failure == EEXIST)
    placed = move_to_free(rename_own_to_free, report.path, path, path_with_pid, reporter.pid);
  if (placed.failure) remove_file(report.path);
  report.failure = placed.failure;
  report.path = placed.path;
  if (placed.failure || !wants_path || placed.path == path) return;
  const Try tried = take_the_path(placed.path, path, reporter);
  if (tried.taken == Taken::yes) {
    report.path = path;
  } else if (!tried.beside_own_run && speaks_for_run()) {
    say_where(path, placed.path);
  }
}

}  // namespace

ReportFile write_report_file(const String& path, Reporter reporter, std::string_view text) {
  ReportFile written = write_apart(path, reporter.pid, text);
  if (!written.failure) place(written, path, reporter);
  return written;
}

ReportFile replace_report_file(const ReportFile& before, Reporter reporter, std::string_view text) {
  ReportFile written = write_apart(before.path, reporter.pid, text);
  if (written.failure) return written;
  String path = before.path;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const Found found(path);
    const bool is_it = found.status().st_dev == before.device && found.status().st_ino == before.inode;
    if (is_it && !found.is_gone() && !rename_file(written.path, path, 0)) {
      written.path = path;
      return written;
    }
    if (found.is_gone() && attempt > 1) break;
    path = path_with_pid(before.path, reporter.pid, attempt);
  }
  place(written, before.path, reporter);
  return written;
}

void set_earlier_report_aside(const String& path) {
  if (!is_main_of_run() || an_argument_names(path)) return;
  const Found found(path);
  if (!found.head() || is_from_before_run(found.status(), found.head()->pid) != true) return;
  const ReportFile moved = move_to_free(rename_to_free, path, path, path_of_earlier, found.head()->pid);
  if (!moved.failure) warn_line("the report of an earlier run was moved from " + path + " to " + moved.path);
}

}  // namespace cistern
