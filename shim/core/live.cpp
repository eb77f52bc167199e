// See live.hpp. Files are made and removed by the system's own calls: a library that changes what programs see of files
// would be in the way, and a signal may end the process.
#include "shim/core/live.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <charconv>
#include <cstddef>
#include <iterator>
#include <new>

#include "pool/base/file_status.hpp"
#include "pool/base/folder.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/process_limit.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/requests.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/live_page.hpp"
#include "shim/process/log.hpp"
#include "shim/process/other_processes.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/sites.hpp"

namespace cistern::live {
namespace {

constexpr char kSharedMemory[] = "/dev/shm";

template <class T>
std::uintptr_t word(T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
constexpr auto kHere = static_cast<std::uintptr_t>(AT_FDCWD);

// The names of this process's files.
class Names {
 public:
  explicit Names(int pid) : folder_(kSharedMemory), name_("") {
    folder_.add("/cistern-");
    add_number(folder_, static_cast<std::uint64_t>(system_call(SYS_geteuid)));
    add_number(name_, pid_namespace());
    name_.add("-");
    add_number(name_, static_cast<std::uint64_t>(pid));
    name_.add("-");
    add_number(name_, static_cast<std::uint64_t>(start_ticks(kThisProcess)));
  }
  const char* folder() const { return folder_.text(); }
  FilePath path(std::string_view ending = {}) const {
    FilePath path = folder_;
    path.add("/");
    path.add(name_.text());
    path.add(ending);
    return path;
  }

 private:
  static void add_number(FilePath& path, std::uint64_t number) {
    char digits[24];
    path.add({digits, static_cast<std::size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
  }
  static std::uint64_t pid_namespace() {
    struct stat found;
    return status_of_file("/proc/self/ns/pid", found) ? 0 : found.st_ino;
  }

  FilePath folder_, name_;
};

constexpr std::string_view kUnfinished = ".new";

struct Page {
  Names names;
  int pid;
  LivePage* memory;
};
constinit std::atomic<Page*> current{nullptr};  // the former stays, for threads that still read it
constinit std::atomic<bool> has_ended{false}, is_writing{false};

// Null: there is none, or it is another process's that this one was forked from.
Page* own_page() {
  Page* const page = current.load();
  return page && page->pid == this_process() ? page : nullptr;
}

bool is_wanted() { return options().live != "off" || options().wake == "command"; }
bool has_own_thread() { return options().live == "thread"; }

void remove(const FilePath& path) { system_call(SYS_unlinkat, kHere, word(path.text()), 0); }

// False: `error` says why.
bool make_folder(const char* path, int& error) {
  const long answer = system_call(SYS_mkdirat, kHere, word(path), 0700);
  struct stat found;
  error = answer < 0 && answer != -EEXIST ? static_cast<int>(-answer) : status_of_link(path, found);
  if (error) return false;
  // All users may write to /dev/shm: another one may have made it.
  const bool is_ours =
      S_ISDIR(found.st_mode) && found.st_uid == static_cast<uid_t>(system_call(SYS_geteuid)) && !(found.st_mode & 077);
  if (!is_ours) error = EACCES;
  return is_ours;
}

// A number at the front of `text`, which it is taken off, with the dash behind it.
std::uint64_t take_number(std::string_view& text) {
  std::uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with('-')) text.remove_prefix(1);
  return number;
}

// Where /proc is that of an outer namespace, or hides processes, it does not say when this one began.
bool is_gone(pid_t pid, std::uint64_t start) {
  if (system_call(SYS_kill, static_cast<std::uintptr_t>(pid), 0) == -ESRCH) return true;
  const std::int64_t began = own_number_in_proc() == this_process() ? start_ticks(pid) : 0;
  return began && static_cast<std::uint64_t>(began) != start;
}

// Those of processes of this pid namespace that are gone.
void remove_left_files(const Names& names) {
  const long folder = system_call(SYS_openat, kHere, word(names.folder()), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  std::string_view own = std::string_view(names.path().text()).substr(strlen(names.folder()) + 1);
  const std::uint64_t own_namespace = take_number(own);
  visit_names(folder, [&](const char* name) {
    std::string_view rest = name;
    if (take_number(rest) != own_namespace) return false;
    const std::uint64_t pid = take_number(rest), start = take_number(rest);
    if (!pid || pid > INT_MAX || !start) return false;
    if (!is_gone(static_cast<pid_t>(pid), start)) return false;
    system_call(SYS_unlinkat, static_cast<std::uintptr_t>(folder), word(name), 0);
    return false;
  });
  system_call(SYS_close, static_cast<std::uintptr_t>(folder));
}

// Null: `error` says why. Its blocks are reserved: no write to it ends the process.
LivePage* make_file(const Names& names, int pid, int& error) {
  if (limit_of_process(RLIMIT_FSIZE) < LivePage::kBytes) {  // a signal would end the process
    error = EFBIG;
    return nullptr;
  }
  if (!make_folder(names.folder(), error)) return nullptr;
  remove_left_files(names);
  const FilePath path = names.path();
  remove(path);  // it may be there from a program that executed this one
  const long file =
      system_call(SYS_openat, kHere, word(path.text()), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  error = file < 0 ? static_cast<int>(-file) : 0;
  if (error) return nullptr;
  long answer = system_call(SYS_fallocate, static_cast<std::uintptr_t>(file), 0, 0, LivePage::kBytes);
  if (answer >= 0)
    answer = system_call(SYS_mmap, 0, LivePage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                         static_cast<std::uintptr_t>(file), 0);
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  if (answer < 0 && answer >= -4095) {
    error = static_cast<int>(-answer);
    remove(path);
    return nullptr;
  }
  auto* const page = new (reinterpret_cast<void*>(answer)) LivePage{};
  page->version = LivePage::kVersion;
  page->pid = pid;
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(page->magic, LivePage::kMagic, sizeof page->magic);
  return page;
}

void say_no_page(const Names& names, int error) {
  char text[128];
  warn_later(String("CISTERN_LIVE: ") + names.folder() + ": " + strerror_r(error, text, sizeof text) +
             ": this process cannot be watched");
}

// In a child: its page is made at its first call for a GPU. Most have none.
constinit std::atomic<std::uint32_t> page_is_due{1};

void make_page();

// Under no lock of ours.
void start_thread() {
  Page* const page = own_page();
  if (!page || has_ended.load() || phase() != Phase::running) return;
  if (locks_held || host::inside_allocator() || system_calls_are_filtered()) return;
  if (!unwatched_live_bell.exchange(nullptr)) return;
  const Uncounted uncounted;
  page->memory->has_thread = await_requests() ? 1 : 0;
}

void on_call_for_gpu() {
  if (unwatched_live_bell.load() == &page_is_due) {
    unwatched_live_bell = nullptr;
    make_page();
  } else {
    start_thread();
  }
}

constinit std::atomic<bool> is_making{false};

void make_page() {
  if (switched_off() || !is_wanted() || has_ended.load() || current.load() || system_calls_are_filtered()) return;
  if (is_making.exchange(true)) return;
  const Uncounted uncounted;
  const int pid = this_process();
  int error = 0;
  const Names names(pid);
  if (LivePage* const memory = make_file(names, pid, error)) {
    current = new (internal_allocate(sizeof(Page))) Page{names, pid, memory};
    live_bell_was_rung = on_call_for_gpu;
    has_files = true;
    unwatched_live_bell.store(&memory->bell, std::memory_order_release);
  } else {
    say_no_page(names, error);
  }
  is_making = false;
}

// --- Answers
// Appears whole. An error number.
int put_report(const Page& page, std::string_view ending, std::string_view text) {
  const FilePath unfinished = page.names.path(kUnfinished), path = page.names.path(ending);
  const long file = system_call(SYS_openat, kHere, word(unfinished.text()),
                                O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return static_cast<int>(-file);
  int failure = write_whole(static_cast<int>(file), text);
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  if (!failure)
    failure =
        static_cast<int>(-system_call(SYS_renameat2, kHere, word(unfinished.text()), kHere, word(path.text()), 0));
  if (failure) remove(unfinished);
  return failure;
}

int answer_with_report(const Page& page, Request request) {
  StringSink text;
  render_now(request == Request::snapshot ? Judged::yes : Judged::no, text);
  is_writing = true;
  const int failure = has_ended.load() ? ESRCH : put_report(page, ending_of_report(request), text.text());
  is_writing = false;
  return failure;
}

int answer_by_trimming(const Page& page) {
  std::uint64_t bytes = 0;
  for (const Kind* kind : kinds())
    for (const KindPool& pool : kind->pools) bytes += pool.trim(0, 0);
  page.memory->returned_bytes = bytes + trim_segments();
  return 0;
}

int answer_one(const Page& page, Request request) {
  switch (request) {
    case Request::refresh:
    case Request::snapshot:
      return answer_with_report(page, request);
    case Request::trim:
      return answer_by_trimming(page);
    case Request::wake:
      return wake_sites() ? 0 : EALREADY;
  }
  return EINVAL;
}

void wake_who_waits(std::atomic<std::uint32_t>& answered) {
  system_call(SYS_futex, word(&answered), FUTEX_WAKE, INT_MAX, 0, 0, 0);
}

}  // namespace

void start() {
  make_page();
  start_thread();
}

void note_gpu_used() {
  make_page();
  if (has_own_thread()) start_thread();
}

std::atomic<std::uint32_t>* bell() {
  Page* const page = own_page();
  return page ? &page->memory->bell : nullptr;
}

void answer() {
  const Page* const page = own_page();
  if (!page) return;
  const Uncounted uncounted;
  for (int i = 0; i < kRequests; ++i) {
    const std::uint32_t asked = page->memory->asked[i].load();
    if (asked == page->memory->answered[i].load() || has_ended.load()) continue;
    page->memory->failures[i] = answer_one(*page, static_cast<Request>(i));
    page->memory->answered[i] = asked;
    wake_who_waits(page->memory->answered[i]);
  }
}

// A report may be on its way into its file.
void remove_files() {
  Page* const page = own_page();
  if (!page || has_ended.exchange(true)) return;
  unwatched_live_bell = nullptr;
  constexpr timespec kTick{0, 1'000'000};
  for (int ticks = 0; is_writing.load() && ticks < 100; ++ticks) system_call(SYS_nanosleep, word(&kTick), 0);
  for (const std::string_view ending : {std::string_view(), std::string_view(ending_of_report(Request::refresh)),
                                        std::string_view(ending_of_report(Request::snapshot)), kUnfinished})
    remove(page->names.path(ending));
}

void dismiss_thread() {
  dismiss_requests();
  Page* const page = own_page();
  if (!page || has_ended.load()) return;
  page->memory->has_thread = 0;
  unwatched_live_bell = &page->memory->bell;
}

void leave() {
  end();
  current = nullptr;
}

void come_back() {
  has_ended = false;
  has_own_thread() ? start() : gpu_used() ? note_gpu_used() : void();
}

void begin_anew_in_child() {
  Page* const page = current.exchange(nullptr);
  has_files = false;
  unwatched_live_bell = nullptr;
  has_ended = false;
  is_making = false;
  is_writing = false;
  if (!page) return;
  system_call(SYS_munmap, word(page->memory), LivePage::kBytes);
  if (has_own_thread()) return start();
  unwatched_live_bell = &page_is_due;
}

}  // namespace cistern::live
