// Runs a program as a system with larger pages would, on pages of 4 KiB. Each process is told BYTES in its auxiliary
// vector, and the calls about memory that one library makes are held to that:
//   - an address, or an offset in a shared file, that is no multiple of BYTES is refused with EINVAL, and noted;
//   - lengths are rounded up, and new mappings begin at multiples;
//   - mincore and pagemap answer by larger pages.
// Where a mapping of the program ends within such a page, its own end counts as the end of one.
//
//   larger_pages LIBRARY BYTES FINDINGS PROGRAM [ARGUMENT...]
//
// LIBRARY is the path of libcistern.so, which the program preloads or not, or of a program that Cistern is linked into.
// FINDINGS is a new file: a line for each refusal, then how often each call was seen. The exit status is the program's.
// The C library and the dynamic linker know pages of 4 KiB still, and so does libbacktrace, which asks the C library:
// offsets of private mappings of files are not checked.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t kOwnPage = 4096;

std::string library;
std::uint64_t page = 0;
FILE* findings = nullptr;
std::map<std::string, unsigned> seen;

std::uint64_t down(std::uint64_t address) { return address & ~(page - 1); }
std::uint64_t up(std::uint64_t address) { return down(address + page - 1); }

struct Mapping {
  std::uint64_t first, end;
  bool is_library_code, is_c_library_code;
};

struct Range {
  std::uint64_t first = 0, end = 0;
  bool holds(std::uint64_t address) const { return first <= address && address < end; }
};

struct Thread {
  bool in_call = false, was_started_anew = false;
  Range code, code_of_c_library;
  bool answered = false;  // by us, and not by the kernel
  long answer = 0;
  bool changed = false;  // arguments, which the program finds as they were
  user_regs_struct before{};
  std::uint64_t scan = 0;  // where the question of a scan lies
};
std::map<pid_t, Thread> threads;

std::string proc(pid_t process, const char* name) { return "/proc/" + std::to_string(process) + "/" + name; }

std::vector<Mapping> mappings_of(pid_t process) {
  std::vector<Mapping> all;
  std::ifstream file(proc(process, "maps"));
  for (std::string line; std::getline(file, line);) {
    Mapping one{};
    char rights[5] = "";
    if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &one.first, &one.end, rights) != 3) continue;
    one.is_library_code = rights[2] == 'x' && line.ends_with(library);
    one.is_c_library_code = rights[2] == 'x' && line.ends_with("/libc.so.6");
    all.push_back(one);
  }
  return all;
}

bool read_memory(pid_t process, std::uint64_t at, void* to, std::size_t bytes) {
  iovec here{to, bytes}, there{reinterpret_cast<void*>(at), bytes};
  return process_vm_readv(process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}
bool write_memory(pid_t process, std::uint64_t at, const void* from, std::size_t bytes) {
  iovec here{const_cast<void*>(from), bytes}, there{reinterpret_cast<void*>(at), bytes};
  return process_vm_writev(process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

// The dynamic linker has read the vector before its first system call, and keeps what it read.
void tell_page_size(pid_t process) {
  std::ifstream file(proc(process, "stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int number = 3; number <= 28; ++number) fields >> field;  // startstack
  std::uint64_t at = std::stoull(field), word = 0;
  const auto next = [&] { return read_memory(process, std::exchange(at, at + 8), &word, sizeof word) ? word : 0; };
  at += 8 * (next() + 1);
  while (next()) {
  }
  for (std::uint64_t type; (type = next()) != AT_NULL; next())
    if (type == AT_PAGESZ) write_memory(process, at, &page, sizeof page);
}

// --- Who calls

void find_code(pid_t process, Thread& thread) {
  for (const Mapping& one : mappings_of(process)) {
    if (one.is_library_code) thread.code = {one.first, one.end};
    if (one.is_c_library_code) thread.code_of_c_library = {one.first, one.end};
  }
}

// By the instruction itself, or by a function of the C library's, whose frame is small.
bool is_call_of_library(pid_t process, Thread& thread, const user_regs_struct& call) {
  if (!thread.code.end || !thread.code_of_c_library.end) find_code(process, thread);
  if (thread.code.holds(call.rip)) return true;
  if (!thread.code_of_c_library.holds(call.rip)) return false;
  std::uint64_t frame[12] = {};
  read_memory(process, call.rsp, frame, sizeof frame);
  const bool has_frame = call.orig_rax == SYS_mmap || call.orig_rax == SYS_mremap;
  const auto words = has_frame ? std::size(frame) : 1;
  return std::any_of(frame, frame + words, [&](std::uint64_t word) { return thread.code.holds(word); });
}

// --- What is asked

void refuse(Thread& thread, const char* name, std::uint64_t argument) {
  fprintf(findings, "%s: %#" PRIx64 " is no multiple of %" PRIu64 "\n", name, argument, page);
  thread.answered = true;
  thread.answer = -EINVAL;
}

void check(pid_t process, Thread& thread, const char* name, std::uint64_t address) {
  ++seen[name];
  if (address % page == 0) return;
  for (const Mapping& one : mappings_of(process))
    if (address == one.first || address == one.end) return;
  refuse(thread, name, address);
}

void change(pid_t process, Thread& thread, const user_regs_struct& call) {
  if (!thread.changed) ptrace(PTRACE_GETREGS, process, 0, &thread.before);
  thread.changed = true;
  ptrace(PTRACE_SETREGS, process, 0, &call);
}

// Below all places that the kernel chooses.
std::uint64_t next_place(std::uint64_t bytes) {
  static std::uint64_t next = 0x1000'0000'0000;
  return std::exchange(next, next + up(bytes) + page);
}

void on_mmap(pid_t process, Thread& thread, user_regs_struct call, bool of_library) {
  const bool fixed = call.r10 & (MAP_FIXED | MAP_FIXED_NOREPLACE);
  if (of_library) {
    check(process, thread, "mmap", fixed ? call.rdi : 0);
    if ((call.r10 & MAP_SHARED) && call.r9 % page != 0) refuse(thread, "mmap, offset", call.r9);
  }
  if (of_library && (call.r10 & MAP_ANONYMOUS)) call.rsi = up(call.rsi);
  if (!fixed && !call.rdi && !(call.r10 & MAP_32BIT)) call.rdi = next_place(call.rsi);
  change(process, thread, call);
}

void on_mincore(pid_t process, Thread& thread, const user_regs_struct& call) {
  check(process, thread, "mincore", call.rdi);
  if (thread.answered) return;
  const auto all = mappings_of(process);
  std::vector<unsigned char> resident(up(call.rsi) / page, 1);
  thread.answered = true;
  for (std::uint64_t at = call.rdi; at < call.rdi + call.rsi; at += page)
    if (std::none_of(all.begin(), all.end(), [&](const Mapping& one) { return one.first < at + page && at < one.end; }))
      thread.answer = -ENOMEM;
  if (thread.answer == 0 && !write_memory(process, call.rdx, resident.data(), resident.size())) thread.answer = -EFAULT;
}

// Empty: no such file.
std::string pagemap_of(pid_t process, std::uint64_t file) {
  char link[64] = "";
  const ssize_t bytes = readlink(proc(process, ("fd/" + std::to_string(file)).c_str()).c_str(), link, sizeof link - 1);
  const std::string path(link, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return path.ends_with("/pagemap") ? path : "";
}

// Present if any part is; of a file if all such parts are.
std::uint64_t merged(const std::uint64_t* parts, std::size_t count) {
  constexpr std::uint64_t kThere = std::uint64_t{3} << 62, kOfFile = std::uint64_t{1} << 61;
  std::uint64_t found = 0;
  bool all_of_file = true;
  for (std::size_t i = 0; i < count; ++i) {
    found |= parts[i] & kThere;
    if (parts[i] & kThere) all_of_file = all_of_file && (parts[i] & kOfFile);
  }
  return found && all_of_file ? found | kOfFile : found;
}

void on_pread(pid_t process, Thread& thread, const user_regs_struct& call) {
  const std::string path = pagemap_of(process, call.rdi);
  if (path.empty()) return;
  ++seen["pagemap"];
  const std::uint64_t parts = page / kOwnPage, count = call.rdx / 8;
  std::vector<std::uint64_t> real(count * parts), larger(count);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  pread(file, real.data(), real.size() * 8, static_cast<off_t>(call.r10 * parts));
  close(file);
  for (std::uint64_t i = 0; i < count; ++i) larger[i] = merged(&real[i * parts], parts);
  thread.answered = true;
  thread.answer = write_memory(process, call.rsi, larger.data(), count * 8) ? static_cast<long>(count * 8) : -EFAULT;
}

// struct pm_scan_arg of Linux 6.7.
struct Scan {
  std::uint64_t bytes, flags, first, end, walk_end, regions;
};
void after_scan(pid_t process, std::uint64_t at) {
  Scan scan{};
  std::uint64_t region[2] = {};
  if (!read_memory(process, at, &scan, sizeof scan) || !read_memory(process, scan.regions, region, sizeof region))
    return;
  region[0] = std::max(down(region[0]), scan.first);
  region[1] = std::min(up(region[1]), scan.end);
  write_memory(process, scan.regions, region, sizeof region);
}

void on_entry(pid_t process, Thread& thread) {
  user_regs_struct call{};
  ptrace(PTRACE_GETREGS, process, 0, &call);
  if (std::exchange(thread.was_started_anew, false)) tell_page_size(process);
  if (call.orig_rax == SYS_clone && (call.rdi & CLONE_UNTRACED)) {
    call.rdi &= ~std::uint64_t{CLONE_UNTRACED};
    return change(process, thread, call);
  }
  const auto number = call.orig_rax;
  const bool matters = number == SYS_mmap || number == SYS_munmap || number == SYS_mprotect || number == SYS_madvise ||
                       number == SYS_mremap || number == SYS_mincore || number == SYS_mbind || number == SYS_msync ||
                       number == SYS_pread64 || number == SYS_ioctl;
  if (!matters) return;
  const bool of_library = is_call_of_library(process, thread, call);
  if (number == SYS_mmap) on_mmap(process, thread, call, of_library);
  if (!of_library) return;
  if (number == SYS_pread64) return on_pread(process, thread, call);
  if (number == SYS_mincore) return on_mincore(process, thread, call);
  if (number == SYS_ioctl && !pagemap_of(process, call.rdi).empty()) {
    thread.scan = call.rdx;
    ++seen["scan"];
  }
  if (number == SYS_munmap || number == SYS_mprotect || number == SYS_madvise) {
    check(process, thread, number == SYS_munmap ? "munmap" : number == SYS_mprotect ? "mprotect" : "madvise", call.rdi);
    if (call.rdi % page == 0) call.rsi = up(call.rsi);
    change(process, thread, call);
  }
  if (number == SYS_mbind) check(process, thread, "mbind", call.rdi);
  if (number == SYS_msync) check(process, thread, "msync", call.rdi);
  if (number == SYS_mremap) {
    check(process, thread, "mremap", call.rdi);
    if (call.r10 & MREMAP_FIXED) check(process, thread, "mremap, to", call.r8);
  }
}

// An answer of ours takes the place of the call, which becomes one that there is not.
void answer_instead(pid_t process) {
  user_regs_struct call{};
  ptrace(PTRACE_GETREGS, process, 0, &call);
  call.orig_rax = ~0ULL;
  ptrace(PTRACE_SETREGS, process, 0, &call);
}

void on_exit_of_call(pid_t process, Thread& thread) {
  user_regs_struct after{};
  ptrace(PTRACE_GETREGS, process, 0, &after);
  if (thread.scan && after.rax == 1) after_scan(process, thread.scan);
  if (thread.changed) {
    after.rdi = thread.before.rdi;
    after.rsi = thread.before.rsi;
  }
  if (thread.answered) after.rax = static_cast<unsigned long long>(thread.answer);
  if (thread.changed || thread.answered) ptrace(PTRACE_SETREGS, process, 0, &after);
  thread.changed = thread.answered = false;
  thread.answer = 0;
  thread.scan = 0;
}

// Returns the signal that the thread is to get.
int on_stop(pid_t id, int status) {
  Thread& thread = threads[id];
  const int signal = WSTOPSIG(status), event = status >> 16;
  if (event == PTRACE_EVENT_EXEC) {
    thread = Thread{};
    thread.in_call = thread.was_started_anew = true;
    return 0;
  }
  if (event == PTRACE_EVENT_STOP || event != 0) return 0;
  if (signal != (SIGTRAP | 0x80)) return signal == SIGTRAP ? 0 : signal;
  thread.in_call = !thread.in_call;
  if (thread.in_call) {
    on_entry(id, thread);
    if (thread.answered) answer_instead(id);
  } else {
    on_exit_of_call(id, thread);
  }
  return 0;
}

int follow(pid_t first) {
  int result = 1;
  for (int status;;) {
    const pid_t id = waitpid(-1, &status, __WALL);
    if (id < 0) return result;
    if (WIFSTOPPED(status)) {
      ptrace(PTRACE_SYSCALL, id, 0, on_stop(id, status));
      continue;
    }
    threads.erase(id);
    if (id == first) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return fprintf(stderr, "larger_pages LIBRARY BYTES FINDINGS PROGRAM [ARGUMENT...]\n"), 2;
  library = arguments[1];
  page = strtoull(arguments[2], nullptr, 10);
  findings = fopen(arguments[3], "wxe");
  if (!findings) return perror(arguments[3]), 2;
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    execvp(arguments[4], arguments + 4);
    perror(arguments[4]);
    _exit(127);
  }
  int status;
  waitpid(child, &status, WUNTRACED);
  constexpr long kFollowed = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE |
                             PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
  if (ptrace(PTRACE_SEIZE, child, 0, kFollowed) != 0) {
    perror("larger_pages: ptrace");
    kill(child, SIGKILL);
    return 77;
  }
  kill(child, SIGCONT);
  const int result = follow(child);
  for (const auto& [name, times] : seen) fprintf(findings, "seen: %s %u\n", name.c_str(), times);
  fclose(findings);
  return result;
}
