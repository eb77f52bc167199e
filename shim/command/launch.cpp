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
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "shim/command/input.hpp"

namespace cistern::command {
namespace {

// All that can be: they are handed on, and SIGCHLD says that the program's state has changed. The C library keeps two
// for itself. A fault of this process is not held back by that.
sigset_t watched_signals() {
  sigset_t set;
  sigfillset(&set);
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
    const pid_t parent = getpid();
    pid_ = forked();
    if (pid_ == 0) observe(watched, parent);
    seen_.close_out();
    fcntl(seen_.in, F_SETFL, O_NONBLOCK);
  }
  ~Witness() {
    if (pid_) kill(pid_, SIGKILL);
    if (pid_) waitpid(pid_, nullptr, 0);
  }
  int descriptor() const { return seen_.in; }
  void ended(pid_t pid) {
    if (pid == pid_) pid_ = 0;
  }

  // Whether the whole group received that signal, which this process has just received: the witness has said so, or it
  // is still pending there. A second one soon after is the group's too: two signals that reach the witness before it
  // runs are one there.
  bool saw(int number) {
    constexpr int kTries = 20;
    constexpr timespec kPause{0, 1'000'000};
    for (int i = 0; i < kTries && pid_; ++i) {
      unsigned char one;
      while (read(seen_.in, &one, 1) == 1) ++counts_[one];
      if (counts_[number] > 0 || is_pending(number)) {
        --counts_[number];  // where it is pending, the witness says so later
        last_[number] = std::chrono::steady_clock::now();
        return true;
      }
      nanosleep(&kPause, nullptr);
    }
    return std::chrono::steady_clock::now() - last_[number] < std::chrono::milliseconds(100);
  }

 private:
  bool is_pending(int number) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("ShdPnd:")) return std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1;
    return false;
  }

  [[noreturn]] void observe(const sigset_t& watched, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    keep_only({seen_.out});
    for (;;) {
      const int number = sigwaitinfo(&watched, nullptr);
      const auto one = static_cast<unsigned char>(number);
      if (number > 0 && write(seen_.out, &one, 1) != 1) _exit(0);
    }
  }

  Pipe seen_;
  pid_t pid_ = 0;
  int counts_[256] = {};
  std::chrono::steady_clock::time_point last_[256] = {};
};

// --- The program
struct Inherited {
  sigset_t mask;
  struct sigaction on_child;  // a process that ignores that signal cannot wait for its children
};

// In the child. `go`: the environment, one entry after another; `failed`: takes the errno.
[[noreturn]] void start(const Launch& launch, const Pipe& go, const Pipe& failed, const Inherited& inherited,
                        pid_t parent) {
  std::string entries;
  char part[4096];
  for (ssize_t bytes; (bytes = read(go.in, part, sizeof part)) > 0;)
    entries.append(part, static_cast<std::size_t>(bytes));
  std::vector<std::string> environment;
  for (std::size_t at = 0; at < entries.size(); at += std::strlen(&entries[at]) + 1)
    environment.push_back(&entries[at]);
  // A kill of this command kills the program, as it would without the command.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);
  sigaction(SIGCHLD, &inherited.on_child, nullptr);
  sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  const int error = become(launch.command, environment);
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

// A signal that the group received did not reach a program that has left it. The program's own group stands for it
// then: without this command it would be the one that a terminal's keys, or a shell, mean.
void hand_on(const siginfo_t& info, pid_t program, Witness& witness) {
  const int number = info.si_signo;
  const pid_t group = getpgid(program);
  if (witness.saw(number)) {
    if (group > 0 && group != getpgrp()) kill(-group, number);
  } else if (info.si_code == SI_QUEUE) {
    sigqueue(program, number, info.si_value);
  } else {
    kill(program, number);
  }
}

// Children that others left to this process, the first of its namespace of processes, are waited for as well.
int wait_for(pid_t program, Witness& witness, const sigset_t& watched) {
  for (;;) {
    int status;
    while (const pid_t changed = waitpid(-1, &status, WNOHANG | WUNTRACED)) {
      if (changed < 0 && errno != EINTR) break;
      if (changed == program && !WIFSTOPPED(status)) return status;
      if (changed == program) stop_with(program);
      if (changed != program && !WIFSTOPPED(status)) witness.ended(changed);
    }
    siginfo_t info;
    const int number = sigwaitinfo(&watched, &info);
    if (number > 0 && number != SIGCHLD) hand_on(info, program, witness);
  }
}

}  // namespace

int become(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const std::size_t sign = entry.find('=');
    const std::string name = entry.substr(0, sign);
    sign + 1 == entry.size() ? unsetenv(name.c_str()) : setenv(name.c_str(), entry.c_str() + sign + 1, 1);
  }
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return errno;
}

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
    start(launch, go, failed, inherited, self);
  }
  go.close_in();
  failed.close_out();
  tell(go, launch.environment(ended.pid));
  go.close_out();
  keep_only({failed.in, witness.descriptor()});
  if (read(failed.in, &ended.exec_error, sizeof ended.exec_error) != sizeof ended.exec_error) ended.exec_error = 0;
  ended.status = wait_for(ended.pid, witness, watched);
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
