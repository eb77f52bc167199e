// The storm's main program (storm.hpp). Options:
//   --seconds N      how long the actors are at work (10)
//   --seed N         (1)
//   --actors A,B     only these (all that can run here)
//   --end WAY        exit, _exit, busy-exit, busy-_exit, thread-exit (by the seed)
//   --hang-seconds N a turn that takes longer is a hang (60)
//   --folder PATH    where files are written (/tmp)
//   --others         libraries in front of Cistern allocate too: figures are not exact
//   --stay           after a failure, a crash or a hang wait for a debugger
#include "tests/storm/storm.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <string>

namespace storm {

std::atomic<bool> ended{false};

namespace {

constexpr unsigned kActorsMost = 16, kSlotsMost = 64;

struct Options {
  unsigned seconds = 10, hang_seconds = 60;
  uint64_t seed = 1;
  std::string actors, end, folder = "/tmp", programs;
  bool stay = false;
  bool others = false;
} options;

Actor actors[kActorsMost];
unsigned actors_count = 0;  // set before main

// One thread of an actor after another.
struct Slot {
  const Actor* actor;
  pthread_t thread;
  std::atomic<uint64_t> turns{0};
  std::atomic<bool> alive{false};
  std::atomic<pid_t> id{0};
  bool joinable = false;
  uint64_t lives = 0;
};
Slot slots[kSlotsMost];
unsigned slots_count = 0;
std::atomic<bool> watching{true};

void say(const char* line, size_t length) {
  if (write(STDERR_FILENO, line, length) < 0) _exit(2);
}

void* live(void* at) {
  Slot& slot = *static_cast<Slot*>(at);
  slot.id = static_cast<pid_t>(syscall(SYS_gettid));
  Random random(options.seed * 1000003 + static_cast<uint64_t>(&slot - slots) * 7919 + slot.lives);
  for (uint32_t left = 1 + random.below(100); left > 0 && !ended; --left) {
    slot.actor->turn(random);
    ++slot.turns;
  }
  slot.alive = false;
  if (random.below(2)) pthread_exit(nullptr);
  return nullptr;
}

void renew(Slot& slot) {
  if (slot.alive) return;
  if (slot.joinable) pthread_join(slot.thread, nullptr);
  slot.alive = true;
  ++slot.lives;
  if (pthread_create(&slot.thread, nullptr, live, &slot)) fail("no thread");
  slot.joinable = true;
}

// Ends the process when a thread's turn takes too long. Allocates nothing, locks nothing.
void* watch(void*) {
  uint64_t seen[kSlotsMost] = {};
  unsigned unchanged_tenths[kSlotsMost] = {};
  while (watching) {
    usleep(100000);
    for (unsigned i = 0; i < slots_count; ++i) {
      const uint64_t now = slots[i].turns + slots[i].alive;
      unchanged_tenths[i] = now == seen[i] && slots[i].alive ? unchanged_tenths[i] + 1 : 0;
      seen[i] = now;
      if (unchanged_tenths[i] > 10 * options.hang_seconds)
        fail("HUNG: actor %s, thread %d", slots[i].actor->name, slots[i].id.load());
    }
  }
  return nullptr;
}

void crashed(int signal, siginfo_t* info, void*) {
  fail("crashed by signal %d at %p, thread %ld", signal, info->si_addr, syscall(SYS_gettid));
}

void catch_crashes() {
  struct sigaction action = {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS}) sigaction(signal, &action, nullptr);
}

bool is_wanted(const Actor& actor) {
  return options.actors.empty() ||
         ("," + options.actors + ",").find("," + std::string(actor.name) + ",") != std::string::npos;
}

void begin(const Actor& actor) {
  if (!is_wanted(actor)) return;
  if (actor.begin && !actor.begin()) {
    printf("storm: no %s here\n", actor.name);
    fflush(stdout);  // children that exit would say it again
    return;
  }
  for (unsigned i = 0; i < actor.threads && slots_count < kSlotsMost; ++i) slots[slots_count++].actor = &actor;
}

uint64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

void rage() {
  for (const uint64_t end = now_ms() + options.seconds * 1000; now_ms() < end;) {
    for (unsigned i = 0; i < slots_count; ++i) renew(slots[i]);
    usleep(2000);
  }
  ended = true;
  for (unsigned i = 0; i < slots_count; ++i)
    if (slots[i].joinable) pthread_join(slots[i].thread, nullptr);
}

void end_actors() {
  for (unsigned i = 0; i < slots_count; ++i)
    if ((i == 0 || slots[i].actor != slots[i - 1].actor) && slots[i].actor->end) slots[i].actor->end();
}

void print_turns() {
  printf("storm: seed %llu:", static_cast<unsigned long long>(options.seed));
  for (unsigned i = 0; i < slots_count;) {
    const Actor* const actor = slots[i].actor;
    uint64_t turns = 0, lives = 0;
    for (; i < slots_count && slots[i].actor == actor; ++i) turns += slots[i].turns, lives += slots[i].lives;
    printf(" %s %llu turns in %llu threads,", actor->name, static_cast<unsigned long long>(turns),
           static_cast<unsigned long long>(lives));
  }
}

void* never_idle(void* seed) {
  Random random(reinterpret_cast<uintptr_t>(seed));
  while (true) {
    churn_blocks(random, 100);
    free(malloc(random.below(100)));
  }
}

// What the process does last. Threads that are busy then are at work on host blocks only.
[[noreturn]] void end_process(Random& random) {
  static const char* const ways[] = {"exit", "_exit", "busy-exit", "busy-_exit", "thread-exit"};
  const std::string way = options.end.empty() ? ways[random.below(5)] : options.end;
  printf(" holds; ends by %s\n", way.c_str());
  fflush(stdout);
  if (way.find("busy") == 0 || way == "thread-exit") {
    pthread_t thread;
    for (int i = 0; i < 3; ++i) pthread_create(&thread, nullptr, never_idle, reinterpret_cast<void*>(random.next()));
    usleep(20000);
  }
  if (way == "thread-exit") {
    pthread_t thread;
    pthread_create(
        &thread, nullptr, [](void*) -> void* { exit(0); }, nullptr);
    pause();
  }
  if (way.find("_exit") != std::string::npos) _exit(0);
  exit(0);
}

void read_options(int count, char** arguments) {
  options.programs = arguments[0];
  options.programs.resize(options.programs.rfind('/') == std::string::npos ? 0 : options.programs.rfind('/'));
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--stay") {
      options.stay = true;
      continue;
    }
    if (name == "--others") {
      options.others = true;
      continue;
    }
    if (++i == count) fail("%s: no value", name.c_str());
    const char* const value = arguments[i];
    if (name == "--seconds")
      options.seconds = static_cast<unsigned>(atoi(value));
    else if (name == "--hang-seconds")
      options.hang_seconds = static_cast<unsigned>(atoi(value));
    else if (name == "--seed")
      options.seed = strtoull(value, nullptr, 10);
    else if (name == "--actors")
      options.actors = value;
    else if (name == "--end")
      options.end = value;
    else if (name == "--folder")
      options.folder = value;
    else
      fail("unknown option %s", name.c_str());
  }
}

}  // namespace

Registered::Registered(const Actor& actor) {
  if (actors_count < kActorsMost) actors[actors_count++] = actor;
}

bool others_allocate() { return options.others; }
const char* scratch_folder() { return options.folder.c_str(); }
const char* programs_folder() { return options.programs.c_str(); }

void fail(const char* format, ...) {
  char line[600];
  int length = snprintf(line, sizeof line,
                        "storm: broken (seed %llu, pid %d): ", static_cast<unsigned long long>(options.seed), getpid());
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  va_end(arguments);
  if (length > static_cast<int>(sizeof line) - 2) length = sizeof line - 2;
  line[length++] = '\n';
  say(line, static_cast<size_t>(length));
  while (options.stay) pause();
  syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

}  // namespace storm

int main(int count, char** arguments) {
  using namespace storm;
  read_options(count, arguments);
  catch_crashes();
  Random random(options.seed);
  require_exact_figures(random, "at the beginning");
  // Before any thread, so that all but the one that wants them (handlers.cpp) have alarms blocked.
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
  for (unsigned i = 0; i < actors_count; ++i) begin(actors[i]);
  pthread_t watcher;
  if (pthread_create(&watcher, nullptr, watch, nullptr)) fail("no thread");
  rage();
  end_actors();
  watching = false;
  pthread_join(watcher, nullptr);
  require_exact_figures(random, "at the end");
  print_turns();
  end_process(random);
}
