// See launch.hpp. A signal may be sent to this process alone (kill PID), or to its group (a terminal's Ctrl-C, kill
// -PGID), and then the program has it already: handing it on would deliver it twice. A third process of the group, the
// witness, tells the two apart: a signal that it received as well was the group's.
#include "shim/command/launch.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/command/input.hpp"

namespace cistern::command {
namespace {

// Signals that are handed on, and SIGCHLD, which says that the program's state has changed.
sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGTTIN,
                           SIGTTOU, SIGWINCH, SIGXCPU, SIGPIPE, SIGCHLD})
    sigaddset(&set, number);
  return set;
}

std::vector<int> open_descriptors() {
  std::vector<int> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error))
    all.push_back(std::atoi(at->path().filename().c_str()));
  return all;
}

struct Pipe {
  int in = -1, out = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw BadInput(std::string("pipe: ") + std::strerror(errno));
    in = ends[0], out = ends[1];
  }
  void close_in() { close(std::exchange(in, -1)); }
  void close_out() { close(std::exchange(out, -1)); }
  ~Pipe() {
    if (in != -1) close(in);
    if (out != -1) close(out);
  }
};

// This process holds nothing that the program may close: the reader of a pipe sees its end, and a lock is free.
// Standard error stays, for the verdict.
void keep_only(std::initializer_list<int> kept) {
  const std::vector<int> all = open_descriptors();
  for (const int descriptor : all)
    if (descriptor != STDERR_FILENO && std::ranges::find(kept, descriptor) == kept.end()) close(descriptor);
  // A file that is opened later must not become standard input or output.
  while (true) {
    const int descriptor = open("/dev/null", O_RDWR);
    if (descriptor > STDOUT_FILENO || descriptor == -1) {
      if (descriptor != -1) close(descriptor);
      return;
    }
  }
}

pid_t forked() {
  const pid_t pid = fork();
  if (pid == -1) throw BadInput(std::string("fork: ") + std::strerror(errno));
  return pid;
}

// --- The witness
class Witness {
 public:
  explicit Witness(const sigset_t& watched) {
    pid_ = forked();
    if (pid_ == 0) observe(watched);
    seen_.close_out();
    fcntl(seen_.in, F_SETFL, O_NONBLOCK);
  }
  ~Witness() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int descriptor() const { return seen_.in; }

  // Whether the whole group received that signal, which this process has just received.
  bool saw(int number) {
    constexpr int kTries = 20;
    constexpr timespec kPause{0, 500'000};
    for (int i = 0; i < kTries; ++i) {
      unsigned char one;
      while (read(seen_.in, &one, 1) == 1) ++counts_[one];
      if (counts_[number]) {
        --counts_[number];
        return true;
      }
      nanosleep(&kPause, nullptr);
    }
    return false;
  }

 private:
  [[noreturn]] void observe(const sigset_t& watched) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    keep_only({seen_.out});
    for (;;) {
      const int number = sigwaitinfo(&watched, nullptr);
      const auto one = static_cast<unsigned char>(number);
      if (number > 0 && write(seen_.out, &one, 1) != 1) _exit(0);
    }
  }

  Pipe seen_;
  pid_t pid_ = 0;
  unsigned counts_[256] = {};
};

// --- The program
struct Inherited {
  sigset_t mask;
  struct sigaction on_child;  // a process that ignores that signal cannot wait for its children
};

// In the child. `go`: the environment, one entry after another; `failed`: takes the errno.
[[noreturn]] void become(const Launch& launch, const Pipe& go, const Pipe& failed, const Inherited& inherited,
                         pid_t parent) {
  std::string entries;
  char part[4096];
  for (ssize_t bytes; (bytes = read(go.in, part, sizeof part)) > 0;)
    entries.append(part, static_cast<std::size_t>(bytes));
  for (std::size_t at = 0; at < entries.size(); at += std::strlen(&entries[at]) + 1) {
    const std::string entry = &entries[at];
    const std::size_t sign = entry.find('=');
    const std::string name = entry.substr(0, sign);
    sign + 1 == entry.size() ? unsetenv(name.c_str()) : setenv(name.c_str(), entry.c_str() + sign + 1, 1);
  }
  // A kill of this command kills the program, as it would without the command.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);
  std::vector<char*> arguments;
  for (const std::string& word : launch.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  sigaction(SIGCHLD, &inherited.on_child, nullptr);
  sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  if (write(failed.out, &error, sizeof error) != sizeof error) _exit(1);
  _exit(error == ENOENT ? 127 : 126);
}

void tell(const Pipe& go, const std::vector<std::string>& environment) {
  std::string entries;
  for (const std::string& entry : environment) entries.append(entry.c_str(), entry.size() + 1);
  for (std::size_t at = 0; at < entries.size();) {
    const ssize_t bytes = write(go.out, &entries[at], entries.size() - at);
    if (bytes < 0 && errno != EINTR) return;
    if (bytes > 0) at += static_cast<std::size_t>(bytes);
  }
}

// The program stopped: so does this process, for the shell that waits for it. If only this process is continued, the
// program is meant as well.
void stop_with(pid_t program) {
  raise(SIGSTOP);
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(program), &info, WCONTINUED | WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid)
    kill(program, SIGCONT);
}

int wait_for(pid_t program, Witness& witness, const sigset_t& watched) {
  for (;;) {
    int status;
    const pid_t changed = waitpid(program, &status, WNOHANG | WUNTRACED);
    if (changed == program && !WIFSTOPPED(status)) return status;
    if (changed == program) {
      stop_with(program);
      continue;
    }
    siginfo_t info;
    const int number = sigwaitinfo(&watched, &info);
    if (number <= 0 || number == SIGCHLD || number == SIGPIPE) continue;
    if (!witness.saw(number)) kill(program, number);
  }
}

}  // namespace

Ended launch(const Launch& launch) {
  const sigset_t watched = watched_signals();
  Inherited inherited;
  sigprocmask(SIG_BLOCK, &watched, &inherited.mask);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &by_default, &inherited.on_child);
  Witness witness(watched);
  Pipe go, failed;
  Ended ended;
  const pid_t self = getpid();
  ended.pid = forked();
  if (ended.pid == 0) {
    go.close_out();
    failed.close_in();
    become(launch, go, failed, inherited, self);
  }
  go.close_in();
  failed.close_out();
  tell(go, launch.environment(ended.pid));
  go.close_out();
  keep_only({failed.in, witness.descriptor()});
  if (read(failed.in, &ended.exec_error, sizeof ended.exec_error) != sizeof ended.exec_error) ended.exec_error = 0;
  ended.status = wait_for(ended.pid, witness, watched);
  sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  return ended;
}

void end_as(const Ended& ended) {
  if (!WIFSIGNALED(ended.status)) std::exit(WEXITSTATUS(ended.status));
  const int number = WTERMSIG(ended.status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the program's own core file is there
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  std::exit(128 + number);  // this signal does not end a process
}

}  // namespace cistern::command
