// The crew: every byte is copied, whatever helpers there are, come and go; where helpers run, which signals they take,
// and what a fork, an exit and a system without threads make of them.
#include "pool/staging/copy_crew.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/support/child.hpp"
#include "tests/support/random.hpp"
#include "tests/support/worker.hpp"

#if defined(__SANITIZE_THREAD__)
#define CISTERN_TEST_TSAN 1
#else
#define CISTERN_TEST_TSAN 0
#endif

namespace cistern::staging {
namespace {

using namespace std::chrono_literals;

[[maybe_unused]] constinit CopyCrew without_constructor;
static_assert(std::is_trivially_destructible_v<CopyCrew>);

constexpr char kGuard = '\x5a';
constexpr std::size_t kLarge = 1 << 20;
constexpr int kRounds = CISTERN_TEST_TSAN ? 10 : 100;

int create_thread(pthread_t* thread, std::size_t stack_bytes, void* (*main)(void*), void* of) {
  pthread_attr_t how;
  pthread_attr_init(&how);
  if (stack_bytes && pthread_attr_setstacksize(&how, stack_bytes) != 0) ADD_FAILURE() << stack_bytes;
  const int error = pthread_create(thread, &how, main, of);
  pthread_attr_destroy(&how);
  return error;
}
constexpr CopyCrew::Threads kThreads = {create_thread, pthread_join};

CopyCrew::Settings many(unsigned helpers) {
  return {.helpers_max = helpers,
          .alone_below_bytes = 64 << 10,
          .share_bytes = 16 << 10,
          .helpers_share_cpus = true,
          .threads = kThreads};
}

// Ends with the test, whatever it asserted.
struct Crew : CopyCrew {
  explicit Crew(const Settings& settings) : CopyCrew(settings) {}
  ~Crew() { stop(); }
};

std::vector<char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<char> made(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& one : made) one = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return made;
}

void copy_flat(CopyCrew& crew, std::vector<char>& to, const std::vector<char>& from,
               Direction direction = Direction::to_device) {
  crew.copy({to.data()}, {from.data()}, {from.size()}, direction);
}

// True: all of it arrived.
bool copies_large(CopyCrew& crew, unsigned seed = 1) {
  const std::vector<char> source = pattern(kLarge, seed);
  std::vector<char> memory(kLarge, kGuard);
  copy_flat(crew, memory, source);
  return memory == source;
}

// --- Threads as the system sees them
using Status = std::map<std::string, std::string>;

// The status of each helper, as /proc has it.
std::vector<Status> helpers_seen() {
  std::vector<Status> found;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/status");
    Status status;
    for (std::string line; std::getline(file, line);) {
      const std::size_t colon = line.find(":\t");
      if (colon != std::string::npos) status[line.substr(0, colon)] = line.substr(colon + 2);
    }
    if (status["Name"] == "cistern-copy") found.push_back(status);
  }
  closedir(tasks);
  return found;
}

// A thread says its name itself, and a moment after it is joined the system still knows it.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms))
    if (condition()) return true;
  return false;
}
bool helpers_become(std::size_t count) {
  return comes_true([&] { return helpers_seen().size() == count; });
}

cpu_set_t mask_of_this_thread() {
  cpu_set_t mask;
  sched_getaffinity(0, sizeof mask, &mask);
  return mask;
}
// Returns its number.
int keep_to_first_cpu() {
  const cpu_set_t all = mask_of_this_thread();
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  return cpu;
}

// --- Copies
class CopyCrewOfHelpers : public testing::TestWithParam<unsigned> {};

// A box at a random place in guarded memory, copied and compared.
void copy_random_box(CopyCrew& crew, std::mt19937& random, const std::vector<char>& source) {
  const std::size_t bytes_max = random() % 4 ? 600 << 10 : 64 << 10;
  Box box{1 + (random() % 2 ? random() % 300 : random() % bytes_max)};
  box.slices = 1 + random() % 3;
  box.rows = 1 + random() % std::max<std::size_t>(1, bytes_max / box.row_bytes / box.slices);
  const auto gap = [&] { return random() % 2 * (random() % std::min<std::size_t>(50, 2 + box.row_bytes / 4)); };
  Side to{};
  to.row_pitch = box.row_bytes + gap();
  to.slice_pitch = to.row_pitch * box.rows + random() % 50;
  ConstSide from{source.data() + random() % 100};
  from.row_pitch = box.row_bytes + gap();
  from.slice_pitch = from.row_pitch * box.rows + random() % 50;
  const std::size_t offset = 64 + random() % 64;
  ASSERT_LE(from.slice_pitch * box.slices + 100, source.size());
  std::vector<char> memory(offset + to.slice_pitch * box.slices + 64, kGuard), expected = memory;
  to.base = memory.data() + offset;
  for (std::size_t slice = 0; slice < box.slices; ++slice)
    for (std::size_t row = 0; row < box.rows; ++row)
      std::memcpy(expected.data() + offset + slice * to.slice_pitch + row * to.row_pitch,
                  from.base + slice * from.slice_pitch + row * from.row_pitch, box.row_bytes);
  crew.copy(to, from, box, random() % 2 ? Direction::to_device : Direction::to_host);
  ASSERT_TRUE(memory == expected) << box.row_bytes << " x " << box.rows << " x " << box.slices;
}

TEST_P(CopyCrewOfHelpers, FourThreadsCopyBoxesAtOnce) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  Crew crew(many(GetParam()));
  const std::vector<char> source = pattern(4 << 20, seed);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      std::mt19937 random(seed + i);
      for (int round = 0; round < kRounds && !testing::Test::HasFatalFailure(); ++round)
        copy_random_box(crew, random, source);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(crew.helpers(), GetParam());
  EXPECT_TRUE(helpers_become(GetParam()));
  crew.stop();
  EXPECT_TRUE(helpers_become(0));
}

TEST_P(CopyCrewOfHelpers, MoreCallersThanJobs) {
  Crew crew(many(GetParam()));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 12; ++i)
    threads.emplace_back([&, i] {
      for (unsigned round = 0; round < 4; ++round) ASSERT_TRUE(copies_large(crew, i * 100 + round));
    });
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Helpers, CopyCrewOfHelpers, testing::Values(0, 1, 2, 3));

// By the kernel too a box of rows that lie apart arrives as it is.
TEST(CopyCrew, CopiesGuardedRows) {
  constexpr std::size_t kPitch = 96, kRow = 40, kRows = 150, kSlices = 3, kSlicePitch = kPitch * kRows + 64;
  const std::vector<char> from = pattern(kSlicePitch * kSlices, 5);
  for (const Guarded which : {Guarded::source, Guarded::target}) {
    Crew crew(many(0));
    std::vector<char> to(kSlicePitch * kSlices, kGuard), expected = to;
    for (std::size_t slice = 0; slice < kSlices; ++slice)
      for (std::size_t row = 0; row < kRows; ++row)
        std::memcpy(expected.data() + slice * kSlicePitch + row * kPitch,
                    from.data() + slice * kSlicePitch + row * kPitch, kRow);
    ASSERT_TRUE(crew.copy({to.data(), kPitch, kSlicePitch}, {from.data(), kPitch, kSlicePitch}, {kRow, kRows, kSlices},
                          Direction::to_device, which));
    EXPECT_TRUE(to == expected);
  }
}

// A page of the program's side is not there: the answer says so, with and without helpers, and no thread faults.
TEST(CopyCrew, SaysThatAGuardedSideIsGone) {
  const auto page = static_cast<std::size_t>(getpagesize());
  auto* const programs =
      static_cast<char*>(mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<char> ours = pattern(kLarge, 3);
  for (const unsigned helpers : {0u, 3u}) {
    Crew crew(many(helpers));
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(crew.copy({programs}, {ours.data()}, {kLarge}, Direction::to_host, Guarded::target));
      ASSERT_EQ(std::memcmp(programs, ours.data(), kLarge), 0);
      ASSERT_TRUE(crew.copy({ours.data()}, {programs}, {kLarge}, Direction::to_device, Guarded::source));
      char* const gone = programs + static_cast<std::size_t>(round) * 7 % (kLarge / page) * page;
      mprotect(gone, page, round % 2 ? PROT_NONE : PROT_READ);
      EXPECT_FALSE(crew.copy({programs}, {ours.data()}, {kLarge}, Direction::to_host, Guarded::target));
      EXPECT_EQ(crew.copy({ours.data()}, {programs}, {kLarge}, Direction::to_device, Guarded::source), round % 2 == 0);
      mprotect(gone, page, PROT_READ | PROT_WRITE);
    }
  }
  munmap(programs, kLarge);
}

TEST(CopyCrew, SmallCopiesAndEmptyOnesNeedNoHelpers) {
  Crew crew({.helpers_share_cpus = true, .threads = kThreads});
  std::vector<char> memory(512 << 10), source = pattern(memory.size() - 1, 1);
  crew.copy({memory.data()}, {source.data()}, {0}, Direction::to_device);
  crew.copy({nullptr}, {nullptr}, {100, 0, 100}, Direction::to_device);
  copy_flat(crew, memory, source);
  EXPECT_EQ(std::memcmp(memory.data(), source.data(), source.size()), 0);
  EXPECT_EQ(crew.helpers(), 0u);
  source.push_back('x');
  copy_flat(crew, memory, source);
  EXPECT_EQ(memory, source);
  EXPECT_EQ(crew.helpers(), 3u);
}

TEST(CopyCrew, MeasuresWhichStoresPayInEachDirection) {
  Crew crew(many(1));
  std::vector<char> source = pattern(256 << 10, 1), memory(source.size());
  for (unsigned i = 0; i < StoresChoice::kCopiesOfALook; ++i) {
    EXPECT_FALSE(crew.stores_figures(Direction::to_host).measured);
    copy_flat(crew, memory, source, Direction::to_host);
    ASSERT_EQ(memory, source);
  }
  const StoresFigures figures = crew.stores_figures(Direction::to_host);
  EXPECT_TRUE(figures.measured);
  EXPECT_GT(figures.cached_gib_per_second, 0);
  EXPECT_GT(figures.streaming_gib_per_second, 0);
  EXPECT_FALSE(crew.stores_figures(Direction::to_device).measured);
}

// --- Helpers as threads
TEST(CopyCrew, HelpersBlockAllSignalsButFaultsAndTheirCallersMaskStays) {
  Crew crew(many(2));
  sigset_t before, after, faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &faults, &before);
  ASSERT_TRUE(copies_large(crew));
  pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_TRUE(sigismember(&after, SIGSEGV));
  EXPECT_FALSE(sigismember(&after, SIGTERM));
  const auto blocks_these = [](const Status& helper) {
    const std::uint64_t blocked = std::stoull(helper.at("SigBlk"), nullptr, 16);
    // The kernel knows two that cannot be blocked, the C library two that are its own.
    for (int signal = 1; signal <= 64; ++signal) {
      if (signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33) continue;
      if ((blocked >> (signal - 1) & 1) == (signal == SIGSEGV || signal == SIGBUS)) return false;
    }
    return true;
  };
  EXPECT_TRUE(comes_true([&] {
    const std::vector<Status> helpers = helpers_seen();
    return helpers.size() == 2 && blocks_these(helpers[0]) && blocks_these(helpers[1]);
  }));
}

TEST(CopyCrew, IdleHelpersSleep) {
  Crew crew(many(3));
  ASSERT_TRUE(copies_large(crew));
  const auto switches = [] {
    std::vector<std::string> found;
    for (const Status& helper : helpers_seen())
      found.push_back(helper.at("voluntary_ctxt_switches") + helper.at("nonvoluntary_ctxt_switches"));
    return found;
  };
  EXPECT_TRUE(helpers_become(3));
  // A busy machine may let one wait before it sleeps.
  EXPECT_TRUE(comes_true([&] {
    const auto before = switches();
    std::this_thread::sleep_for(50ms);
    for (const Status& helper : helpers_seen())
      if (helper.at("State")[0] != 'S') return false;
    return before == switches();
  }));
}

TEST(CopyCrew, WithOneCpuThereIsNoHelper) {
  Crew crew({.threads = kThreads});
  test::in_new_thread([&] {
    keep_to_first_cpu();
    EXPECT_TRUE(copies_large(crew));
  });
  EXPECT_EQ(crew.helpers(), 0u);
  const cpu_set_t mask = mask_of_this_thread();
  EXPECT_TRUE(copies_large(crew));
  EXPECT_EQ(crew.helpers(), std::min(3u, static_cast<unsigned>(CPU_COUNT(&mask)) - 1));
}

TEST(CopyCrew, HelpersFollowTheirCallersMask) {
  const cpu_set_t all = mask_of_this_thread();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  Crew crew(many(2));
  EXPECT_TRUE(copies_large(crew));
  int cpu = 0;
  // A helper moves when it helps, and whether one does is a matter of time.
  const auto all_are_on = [&](const std::string& cpus) {
    return comes_true([&] {
      EXPECT_TRUE(copies_large(crew));
      const std::vector<Status> helpers = helpers_seen();
      return helpers.size() == 2 && helpers[0].at("Cpus_allowed_list") == cpus &&
             helpers[1].at("Cpus_allowed_list") == cpus;
    });
  };
  test::in_new_thread([&] {
    cpu = keep_to_first_cpu();
    EXPECT_TRUE(all_are_on(std::to_string(cpu)));
  });
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line) && line.rfind("Cpus_allowed_list:\t", 0) != 0) {
  }
  EXPECT_TRUE(all_are_on(line.substr(line.find('\t') + 1)));
}

TEST(CopyCrew, CallersOnDifferentCpusAtOnce) {
  Crew crew(many(2));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      if (i % 2 == 0) keep_to_first_cpu();
      for (unsigned round = 0; round < 10; ++round) ASSERT_TRUE(copies_large(crew, i * 100 + round));
    });
  for (std::thread& thread : threads) thread.join();
}

// As a garbage collector does that protects memory and learns from the fault who touches it.
struct Protected {
  static inline char* memory;
  static inline std::atomic<int> faults;
  static constexpr std::size_t kBytes = 2 << 20, kPage = 64 << 10;

  static void on_fault(int, siginfo_t* fault, void*) {
    const std::size_t at = static_cast<std::size_t>(static_cast<char*>(fault->si_addr) - memory);
    if (at >= kBytes || mprotect(memory + at / kPage * kPage, kPage, PROT_READ | PROT_WRITE) != 0) _exit(3);
    ++faults;
  }
};

TEST(CopyCrew, AFaultInAHelperReachesTheProgramsHandler) {
  Crew crew(many(3));
  Protected::memory =
      static_cast<char*>(mmap(nullptr, Protected::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const std::vector<char> source = pattern(Protected::kBytes, 7);
  std::memcpy(Protected::memory, source.data(), source.size());
  struct sigaction mine {
  }, before;
  mine.sa_sigaction = Protected::on_fault;
  mine.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &mine, &before);
  std::vector<char> memory(source.size());
  Protected::faults = 0;
  for (int round = 0; round < 50; ++round) {
    mprotect(Protected::memory, Protected::kBytes, PROT_NONE);
    std::fill(memory.begin(), memory.end(), kGuard);
    crew.copy({memory.data()}, {Protected::memory}, {memory.size()}, Direction::to_device);
    ASSERT_TRUE(memory == source);
  }
  sigaction(SIGSEGV, &before, nullptr);
  EXPECT_GE(Protected::faults, 50 * static_cast<int>(Protected::kBytes / Protected::kPage));
  munmap(Protected::memory, Protected::kBytes);
}

// --- The end
TEST(CopyCrew, StopEndsTheHelpersInTheMidstOfCopiesAndCopiesGoOn) {
  for (int round = 0; round < 10; ++round) {
    Crew crew(many(3));
    std::atomic<bool> done = false;
    std::thread copying([&] {
      for (unsigned i = 0; !done; ++i) ASSERT_TRUE(copies_large(crew, i));
    });
    EXPECT_TRUE(comes_true([&] { return crew.helpers() == 3; }));
    std::thread other([&] { crew.stop(); });
    crew.stop();
    other.join();
    EXPECT_EQ(crew.helpers(), 0u);
    EXPECT_TRUE(helpers_become(0));
    EXPECT_TRUE(copies_large(crew));
    done = true;
    copying.join();
    EXPECT_EQ(helpers_seen().size(), 0u);
  }
}

TEST(CopyCrew, StoppedBeforeItBegan) {
  Crew crew(many(3));
  crew.stop();
  EXPECT_TRUE(copies_large(crew));
  EXPECT_EQ(crew.helpers(), 0u);
}

// --- Without threads
int creations;

TEST(CopyCrew, WithoutThreadsTheCallerCopiesAndRarelyAsksAgain) {
  CopyCrew::Settings settings = many(3);
  creations = 0;
  settings.threads.create = [](pthread_t*, std::size_t, void* (*)(void*), void*) { return ++creations, EAGAIN; };
  Crew crew(settings);
  std::vector<char> source = pattern(128 << 10, 1), memory(source.size());
  for (int i = 0; i < 200; ++i) {
    std::fill(memory.begin(), memory.end(), kGuard);
    copy_flat(crew, memory, source);
    ASSERT_EQ(memory, source);
  }
  EXPECT_EQ(creations, 2) << "with a small stack, and with one of the usual size";
  for (int i = 0; i < 200; ++i) copy_flat(crew, memory, source);
  EXPECT_EQ(creations, 4);
  EXPECT_EQ(crew.helpers(), 0u);
}

TEST(CopyCrew, NothingToMakeThreadsWith) {
  CopyCrew::Settings settings = many(3);
  settings.threads = {};
  Crew crew(settings);
  EXPECT_TRUE(copies_large(crew));
  EXPECT_EQ(crew.helpers(), 0u);
}

TEST(CopyCrew, WhereASmallStackIsRefusedItIsOneOfTheUsualSize) {
  CopyCrew::Settings settings = many(2);
  settings.threads.create = [](pthread_t* thread, std::size_t stack_bytes, void* (*main)(void*), void* of) {
    return stack_bytes ? EINVAL : create_thread(thread, stack_bytes, main, of);
  };
  Crew crew(settings);
  EXPECT_TRUE(copies_large(crew));
  EXPECT_EQ(crew.helpers(), 2u);
}

TEST(CopyCrew, OneThreadIsToBeHad) {
  CopyCrew::Settings settings = many(3);
  creations = 0;
  settings.threads.create = [](pthread_t* thread, std::size_t stack_bytes, void* (*main)(void*), void* of) {
    return creations++ ? EAGAIN : create_thread(thread, stack_bytes, main, of);
  };
  Crew crew(settings);
  EXPECT_TRUE(copies_large(crew));
  EXPECT_EQ(crew.helpers(), 1u);
}

// --- Fork
class CopyCrewFork : public testing::Test {
 protected:
  void SetUp() override {
    if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer allows no new threads in a child of a process with threads";
  }
};

pid_t fork_with(CopyCrew& crew) {
  crew.before_fork();
  const pid_t child = fork();
  child == 0 ? crew.after_fork_in_child() : crew.after_fork_in_parent();
  return child;
}

int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(CopyCrewFork, InTheMidstOfOthersCopies) {
  Crew crew(many(3));
  std::atomic<bool> done = false;
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 2; ++i)
    busy.emplace_back([&, i] {
      for (unsigned round = 0; !done; ++round) ASSERT_TRUE(copies_large(crew, i * 10000 + round));
    });
  const std::vector<char> source = pattern(kLarge, 3);
  std::vector<char> memory(kLarge);
  for (int round = 0; round < 50; ++round) {
    std::fill(memory.begin(), memory.end(), kGuard);
    const pid_t child = fork_with(crew);
    ASSERT_NE(child, -1);
    if (child == 0) {
      alarm(60);
      const bool none_at_first = crew.helpers() == 0;
      copy_flat(crew, memory, source);
      bool right = none_at_first && memory == source && crew.helpers() == 3;
      if (round % 2) {
        crew.stop();
        right = right && copies_large(crew) && crew.helpers() == 0;
      }
      _exit(right ? 0 : 1);
    }
    copy_flat(crew, memory, source);
    ASSERT_TRUE(memory == source);
    ASSERT_EQ(status_of(child), 0);
  }
  done = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(crew.helpers(), 3u);
}

TEST_F(CopyCrewFork, AStoppedCrewStaysSoInTheChild) {
  Crew crew(many(3));
  ASSERT_TRUE(copies_large(crew));
  crew.stop();
  const pid_t child = fork_with(crew);
  if (child == 0) _exit(copies_large(crew) && crew.helpers() == 0 ? 0 : 1);
  EXPECT_EQ(status_of(child), 0);
}

// The child goes on in the copy that the handler interrupted.
struct ForkingHandler {
  static inline CopyCrew* crew;
  static inline std::atomic<bool> in_child;
  static inline std::atomic<int> children;
  static inline pid_t child[50];

  static void on_signal(int) {
    const int error = errno, number = children;
    if (number == 50 || in_child) return;
    child[number] = fork_with(*crew);
    if (child[number] == 0) {
      in_child = true;
      alarm(60);
    }
    children = number + 1;
    errno = error;
  }
};

TEST_F(CopyCrewFork, InAHandlerThatInterruptedTheCopyingThread) {
  Crew crew(many(3));
  ForkingHandler::crew = &crew;
  ForkingHandler::children = 0;
  struct sigaction mine {
  }, before;
  mine.sa_handler = ForkingHandler::on_signal;
  sigaction(SIGUSR1, &mine, &before);
  std::atomic<bool> ready = false;
  std::thread copying([&] {
    const std::vector<char> sources[] = {pattern(1 << 20, 1), pattern(1 << 20, 2)};
    std::vector<char> memory(1 << 20);
    ready = true;
    for (unsigned i = 0; ForkingHandler::children < 50; ++i) {
      copy_flat(crew, memory, sources[i % 2]);
      const bool right = memory == sources[i % 2];
      if (ForkingHandler::in_child) {
        copy_flat(crew, memory, sources[(i + 1) % 2]);
        _exit(right && memory == sources[(i + 1) % 2] ? 0 : 1);
      }
      ASSERT_TRUE(right);
    }
  });
  std::mt19937 random(test::new_seed());
  while (!ready) std::this_thread::yield();
  for (int sent = 0; sent < 50; ++sent) {
    pthread_kill(copying.native_handle(), SIGUSR1);
    comes_true([&] { return ForkingHandler::children > sent; });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  }
  copying.join();
  for (const pid_t child : ForkingHandler::child) EXPECT_EQ(status_of(child), 0);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace cistern::staging
