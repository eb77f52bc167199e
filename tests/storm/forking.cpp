// Actor: forks of a process whose other threads are anywhere, inside the allocator too. The children use what they
// inherited, start threads, report, fork again, and end in every way there is. Also programs that are executed.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/storm/cistern_calls.hpp"
#include "tests/storm/storm.hpp"

extern char** environ;

namespace storm {
namespace {

constexpr int kHangSeconds = 60;

void start_busy_threads(Random& random) {
  for (int i = 0; i < 2; ++i)
    std::thread([seed = random.next()] {
      Random own(seed);
      while (true) churn_blocks(own, 100);
    }).detach();
}

void work_with_threads(Random& random) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([seed = random.next()] {
      Random own(seed);
      churn_blocks(own, 200);
      ask_something(own);
    });
  churn_blocks(random, 200);
  for (std::thread& thread : threads) thread.join();
}

void report_to_file(unsigned child) {
  if (!cistern.report) return;
  char path[300];
  snprintf(path, sizeof path, "%s/child-%d-%u.json", scratch_folder(), getpid(), child);
  if (const cistern_status status = cistern.report(path, CISTERN_JSON))
    fail("cistern_report in a child: %s", cistern.status_text(status));
  if (child % 16) unlink(path);
}

void fork_again(Random& random) {
  churn_blocks(random, 100);
  const pid_t grandchild = fork();
  if (grandchild < 0) fail("fork in a child: %s", strerror(errno));
  if (grandchild == 0) _exit(0);
  require_good_end(grandchild, "a grandchild");
}

enum class End { at_once, by_exit, by_exec };

// What a child does before its end.
struct Child {
  const char* name;
  void (*work)(Random& random);
  End end;
};

void start_busy_threads_and_ask(Random& random) {
  start_busy_threads(random);
  usleep(1000);
  for (int i = 0; i < 5; ++i) ask_something(random);
}

const Child children[] = {
    {"a child that ends at once", nullptr, End::at_once},
    {"a child that counts", [](Random& random) { require_exact_figures(random, "in a forked child"); }, End::at_once},
    {"a child that reports", [](Random& random) { report_to_file(random.below(1000)); }, End::at_once},
    {"a child that frees", [](Random&) { free_inherited_blocks(); }, End::by_exit},
    {"a child with threads", work_with_threads, End::by_exit},
    {"a child with busy threads", start_busy_threads, End::by_exit},
    {"a child with busy threads that asks", start_busy_threads_and_ask, End::at_once},
    {"a child with busy threads that asks and exits", start_busy_threads_and_ask, End::by_exit},
    {"a child that forks", [](Random& random) { fork_again(random); }, End::at_once},
    {"a child with streams", use_stdio, End::by_exit},
    {"a child that becomes /bin/true", [](Random& random) { churn_blocks(random, 300); }, End::by_exec},
};

[[noreturn]] void in_child(const Child& child, Random& random) {
  if (child.work) child.work(random);
  if (child.end == End::by_exec) execl("/bin/true", "/bin/true", nullptr);
  if (child.end == End::by_exec) _exit(9);
  if (child.end == End::at_once) _exit(0);
  if (random.below(4) == 0) quick_exit(0);
  exit(0);
}

// A fork that takes longer than the interval of a profiling timer is interrupted and begun anew for ever: also without
// Cistern.
class WithoutProfiling {
 public:
  WithoutProfiling() {
    sigset_t profiling;
    sigemptyset(&profiling);
    sigaddset(&profiling, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &profiling, &before_);
  }
  ~WithoutProfiling() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

pid_t fork_one(const Child& child, Random& random) {
  const WithoutProfiling without_profiling;
  Random of_child(random.next());
  const pid_t made = fork();
  if (made < 0) fail("fork: %s", strerror(errno));
  if (made == 0) in_child(child, of_child);
  return made;
}

pid_t fork_one_to_exit(const Child& child, Random& random) {
  const Exclusion no_library_leaves(Exclusion::forking_to_exit);
  return fork_one(child, random);
}

void vfork_and_exec() {
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "/bin/true", nullptr);
    _exit(9);
  }
  if (child < 0) fail("vfork: %s", strerror(errno));
  require_good_end(child, "/bin/true");
}

void spawn() {
  char* const command[] = {const_cast<char*>("/bin/true"), nullptr};
  pid_t child = 0;
  if (const int code = posix_spawn(&child, "/bin/true", nullptr, nullptr, command, environ))
    fail("posix_spawn: %s", strerror(code));
  require_good_end(child, "/bin/true, spawned");
}

void turn(Random& random) {
  if (random.below(16) == 0) return vfork_and_exec();
  if (random.below(16) == 0) return spawn();
  const Child& child = children[random.below(std::size(children))];
  const pid_t made = child.end == End::by_exit ? fork_one_to_exit(child, random) : fork_one(child, random);
  require_good_end(made, child.name);
}

const Registered forking({"forking", 2, turn, nullptr, nullptr});

// Above 0: so many are under such a lock; below: so many children are being made.
std::atomic<int> passing{0};

}  // namespace

Exclusion::Exclusion(Side side) : side_(side) {
  for (int now = passing;;) {
    if (now * side_ < 0) {
      usleep(100);
      now = passing;
    } else if (passing.compare_exchange_weak(now, now + side_)) {
      return;
    }
  }
}

Exclusion::~Exclusion() { passing -= side_; }

void require_good_end(pid_t child, const char* what) {
  int status = 0;
  for (int waited = 0;; ++waited) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) break;
    if (done < 0 && errno != EINTR) fail("waitpid: %s", strerror(errno));
    if (waited > kHangSeconds * 2000) fail("HUNG: %s, pid %d, did not end in %d s", what, child, kHangSeconds);
    usleep(500);
  }
  if (WIFSIGNALED(status)) fail("%s, pid %d, ended by signal %d", what, child, WTERMSIG(status));
  if (status) fail("%s, pid %d, ended with status %d", what, child, WEXITSTATUS(status));
}

}  // namespace storm
