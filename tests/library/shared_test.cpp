// Shared buffers: what each call answers, permissions, names that somebody else planted, processes that end in every
// way, limits of the system, device memory between processes (the simulated driver). Dying at random: shared_kill.cpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cistern/shared_buffer.hpp>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

constexpr uid_t kNobody = 65534;

std::string path_of(const std::string& name, uid_t user = geteuid()) {
  return "/dev/shm/cistern-" + std::to_string(user) + "-" + name;
}
bool is_there(const std::string& path) {
  struct stat seen {};
  return lstat(path.c_str(), &seen) == 0;
}

cistern_shared_settings settings(const std::string& name, std::size_t bytes, cistern_kind kind = CISTERN_HOST) {
  cistern_shared_settings of{};
  of.struct_bytes = sizeof of;
  of.name = name.c_str();
  of.kind = kind;
  of.bytes = bytes;
  return of;
}
cistern_status create(const cistern_shared_settings& of, cistern_shared** shared) {
  return cistern_shared_create(&of, shared);
}
cistern_status attach(const cistern_shared_settings& of, cistern_shared** shared) {
  return cistern_shared_attach(&of, shared);
}
cistern_shared_view view_of(cistern_shared* shared) {
  auto view = cistern::sized<cistern_shared_view>();
  EXPECT_EQ(cistern_shared_get(shared, &view), CISTERN_OK);
  return view;
}
char* memory_of(cistern_shared* shared) { return static_cast<char*>(view_of(shared).address); }

// Two processes, turn by turn.
class Baton {
 public:
  Baton() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~Baton() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;
  void pass() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  void wait() const {
    constexpr int kMillisecondsMax = 30'000;
    pollfd passed{ends_[0], POLLIN, 0};
    while (poll(&passed, 1, kMillisecondsMax) < 0 && errno == EINTR) continue;
    char got;
    EXPECT_TRUE((passed.revents & POLLIN) && read(ends_[0], &got, 1) == 1) << "the other process has failed";
  }

 private:
  int ends_[2];
};

// What `work` answers is the exit code; 0 is as it should be.
template <class Work>
pid_t begin_child(Work work) {
  const bool had_failed = testing::Test::HasFailure();
  const pid_t child = fork();
  if (child) return child;
  const int answer = work();
  _exit(!had_failed && testing::Test::HasFailure() ? 99 : answer);
}
int end_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
template <class Work>
int in_child(Work work) {
  return end_of(begin_child(work));
}

class Shared : public testing::Test {
 protected:
  void SetUp() override {
    name_ = "test-" + std::to_string(getpid()) + "-" + testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = path_of(name_);
  }
  void TearDown() override {
    EXPECT_FALSE(is_there(path_)) << "left behind";
    unlink(path_.c_str());
  }
  cistern_shared* created(std::size_t bytes) const {
    cistern_shared* shared = nullptr;
    EXPECT_EQ(create(settings(name_, bytes), &shared), CISTERN_OK) << cistern_native_error();
    return shared;
  }
  cistern_status attached(cistern_shared** shared) const { return attach(settings(name_, 0), shared); }

  std::string name_, path_;
};

TEST_F(Shared, IsTheSameMemoryForAllAndGoesWithTheLast) {
  cistern_shared *mine = created(100'000), *again = nullptr;
  EXPECT_EQ(std::count(memory_of(mine), memory_of(mine) + 100'000, 0), 100'000);
  strcpy(memory_of(mine), "from the parent");
  EXPECT_EQ(in_child([&] {
              cistern_shared* own = nullptr;
              if (attached(&own) || strcmp(memory_of(own), "from the parent") != 0) return 1;
              strcpy(memory_of(own) + 99'000, "from the child");
              return cistern_shared_detach(own) || !is_there(path_) ? 2 : 0;
            }),
            0);
  EXPECT_STREQ(memory_of(mine) + 99'000, "from the child");
  ASSERT_EQ(attached(&again), CISTERN_OK);
  EXPECT_NE(memory_of(again), memory_of(mine));
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
  EXPECT_TRUE(is_there(path_));
  EXPECT_STREQ(memory_of(again), "from the parent");
  EXPECT_EQ(cistern_shared_detach(again), CISTERN_OK);
  EXPECT_FALSE(is_there(path_));
}

TEST_F(Shared, ChecksWhatIsAttached) {
  cistern_shared_settings of = settings(name_, 4096);
  of.element_bytes = 16;
  of.type = 7;
  cistern_shared *mine = nullptr, *other = nullptr;
  ASSERT_EQ(create(of, &mine), CISTERN_OK);
  EXPECT_EQ(create(of, &other), CISTERN_EXISTS);
  EXPECT_EQ(other, nullptr);
  const auto mismatches = [&](auto change) {
    cistern_shared_settings wrong = of;
    change(wrong);
    return attach(wrong, &other) == CISTERN_MISMATCH && !other;
  };
  EXPECT_TRUE(mismatches([](auto& wrong) { wrong.bytes = 4080; }));
  EXPECT_TRUE(mismatches([](auto& wrong) { wrong.element_bytes = 8; }));
  EXPECT_TRUE(mismatches([](auto& wrong) { wrong.type = 8; }));
  EXPECT_TRUE(mismatches([](auto& wrong) { wrong.kind = CISTERN_DEVICE; }));
  ASSERT_EQ(attach(of, &other), CISTERN_OK);
  const cistern_shared_view view = view_of(other);
  EXPECT_EQ(view.bytes, 4096u);
  EXPECT_EQ(view.element_bytes, 16u);
  EXPECT_EQ(view.type, 7u);
  EXPECT_EQ(view.kind, CISTERN_HOST);
  EXPECT_EQ(view.writable, 1);
  EXPECT_EQ(view.owner, 0);
  EXPECT_EQ(cistern_shared_detach(other), CISTERN_OK);
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
  EXPECT_EQ(attach(of, &other), CISTERN_NOT_FOUND);
}

TEST_F(Shared, RefusesWhatMakesNoSense) {
  cistern_shared* shared = nullptr;
  for (const std::string wrong : {"", ".hidden", "..", "a/b", "/a", "a b", "\xc3\xa4", "a\n"})
    EXPECT_EQ(create(settings(wrong, 10), &shared), CISTERN_INVALID) << wrong;
  EXPECT_EQ(create(settings(std::string(201, 'a'), 10), &shared), CISTERN_INVALID);
  EXPECT_EQ(attach(settings("a/b", 0), &shared), CISTERN_INVALID);
  for (const cistern_kind kind : {CISTERN_OPENCL, CISTERN_PINNED, CISTERN_MANAGED, static_cast<cistern_kind>(9)})
    EXPECT_EQ(create(settings(name_, 10, kind), &shared), CISTERN_INVALID);
  const auto refuses = [&](auto change) {
    cistern_shared_settings wrong = settings(name_, 4096);
    change(wrong);
    return create(wrong, &shared) == CISTERN_INVALID;
  };
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.name = nullptr; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.struct_bytes = 8; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.bytes = 0; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.element_bytes = 3; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.mode = 0444; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.mode = 04600; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.flags = CISTERN_READ_ONLY; }));
  EXPECT_TRUE(refuses([](auto& wrong) { wrong.device = -1; }));
  EXPECT_EQ(cistern_shared_create(nullptr, &shared), CISTERN_INVALID);
  const cistern_shared_settings right = settings(name_, 10);
  EXPECT_EQ(cistern_shared_create(&right, nullptr), CISTERN_INVALID);
  cistern_shared_settings flags = right;
  flags.flags = 4;
  EXPECT_EQ(attach(flags, &shared), CISTERN_INVALID);
  shared = created(10);
  EXPECT_EQ(cistern_shared_get(shared, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
  Captured said;
  EXPECT_EQ(cistern_shared_detach(shared), CISTERN_INVALID);
  EXPECT_EQ(cistern_shared_get(nullptr, nullptr), CISTERN_INVALID);
  EXPECT_NE(said.text().find("no shared buffer, or destroyed already; refused"), std::string::npos);
  const std::string longest(200, 'z');
  ASSERT_EQ(create(settings(longest, 10), &shared), CISTERN_OK);
  EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
  EXPECT_FALSE(is_there(path_of(longest)));
}

TEST_F(Shared, HasThePermissionsThatWereAskedFor) {
  const mode_t before = umask(077);
  for (const unsigned mode : {0u, 0600u, 0644u, 0666u, 0777u}) {
    cistern_shared_settings of = settings(name_, 10);
    of.mode = mode;
    cistern_shared* shared = nullptr;
    ASSERT_EQ(create(of, &shared), CISTERN_OK);
    struct stat seen {};
    ASSERT_EQ(stat(path_.c_str(), &seen), 0);
    EXPECT_EQ(seen.st_mode & 07777, mode ? mode : 0600u);
    EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
  }
  umask(before);
}

// The memory can't be written where it is only read.
TEST_F(Shared, MayBeForReadingOnly) {
  cistern_shared *mine = created(10), *other = nullptr;
  cistern_shared_settings of = settings(name_, 0);
  of.flags = CISTERN_READ_ONLY;
  ASSERT_EQ(attach(of, &other), CISTERN_OK);
  EXPECT_EQ(view_of(other).writable, 0);
  EXPECT_NE(mprotect(memory_of(other), 10, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
  EXPECT_EQ(cistern_shared_detach(other), CISTERN_OK);
}

// As root alone: in children that are another user.
class SharedAmongUsers : public Shared {
 protected:
  void SetUp() override {
    Shared::SetUp();
    if (geteuid() != 0) GTEST_SKIP() << "not root";
  }
  cistern_shared_settings of_root(unsigned flags) const {
    cistern_shared_settings of = settings(name_, 0);
    of.flags = CISTERN_OF_OTHER_USER | flags;
    of.user = 0;
    return of;
  }
};

TEST_F(SharedAmongUsers, LetsInWhomTheModeLetsIn) {
  const auto answers = [&](unsigned flags) {
    return in_child([&] {
      if (setresuid(kNobody, kNobody, kNobody)) return 90;
      cistern_shared* shared = nullptr;
      const cistern_status status = attach(of_root(flags), &shared);
      if (status == CISTERN_OK && view_of(shared).writable != !(flags & CISTERN_READ_ONLY)) return 91;
      if (attached(&shared) != CISTERN_NOT_FOUND) return 92;  // its own of that name
      return static_cast<int>(status);
    });
  };
  struct {
    unsigned mode;
    cistern_status reads, writes;
  } const rows[] = {
      {0600, CISTERN_DENIED, CISTERN_DENIED}, {0644, CISTERN_OK, CISTERN_DENIED}, {0666, CISTERN_OK, CISTERN_OK}};
  for (const auto& row : rows) {
    cistern_shared_settings of = settings(name_, 10);
    of.mode = row.mode;
    cistern_shared* shared = nullptr;
    ASSERT_EQ(create(of, &shared), CISTERN_OK);
    EXPECT_EQ(answers(CISTERN_READ_ONLY), row.reads) << row.mode;
    EXPECT_EQ(answers(0), row.writes) << row.mode;
    EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
    EXPECT_EQ(answers(0), CISTERN_NOT_FOUND);
  }
}

// It can't remove it, and need not: the next call of the user whose it is does.
TEST_F(SharedAmongUsers, ALastOneOfAnotherUserLeavesALeftover) {
  cistern_shared_settings of = settings(name_, 10);
  of.mode = 0666;
  cistern_shared *mine = nullptr, *again = nullptr;
  ASSERT_EQ(create(of, &mine), CISTERN_OK);
  const Baton is_in, may_leave;
  const pid_t other = begin_child([&] {
    cistern_shared* shared = nullptr;
    if (setresuid(kNobody, kNobody, kNobody) || attach(of_root(0), &shared)) return 1;
    is_in.pass();
    may_leave.wait();
    if (strcmp(memory_of(shared), "here") != 0) return 2;
    return static_cast<int>(cistern_shared_detach(shared));
  });
  is_in.wait();
  strcpy(memory_of(mine), "here");
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
  ASSERT_EQ(attached(&again), CISTERN_OK) << "somebody has it";
  EXPECT_EQ(cistern_shared_detach(again), CISTERN_OK);
  may_leave.pass();
  EXPECT_EQ(end_of(other), 0);
  EXPECT_EQ(attached(&again), CISTERN_NOT_FOUND);
}

// Neither call follows it, changes it, or opens what would wait.
TEST_F(SharedAmongUsers, LeaveAloneWhatAnotherUserPlanted) {
  cistern_shared* shared = nullptr;
  const auto denied_and_untouched = [&] {
    struct stat before {
    }, after{};
    lstat(path_.c_str(), &before);
    EXPECT_EQ(create(settings(name_, 10), &shared), CISTERN_DENIED);
    EXPECT_EQ(attached(&shared), CISTERN_DENIED);
    cistern_shared_clean(nullptr);
    EXPECT_EQ(lstat(path_.c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
    EXPECT_EQ(unlink(path_.c_str()), 0);
  };
  const std::string target = "/dev/shm/" + name_ + "-target";
  close(open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  ASSERT_EQ(lchown(path_.c_str(), kNobody, kNobody), 0);
  denied_and_untouched();
  ASSERT_EQ(symlink("/nowhere/at/all", path_.c_str()), 0);
  denied_and_untouched();
  ASSERT_EQ(link(target.c_str(), path_.c_str()), 0);
  denied_and_untouched();
  ASSERT_EQ(mkfifo(path_.c_str(), 0666), 0);
  denied_and_untouched();
  close(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  ASSERT_EQ(chown(path_.c_str(), kNobody, kNobody), 0);
  denied_and_untouched();
  struct stat seen {};
  EXPECT_EQ(stat(target.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_size, 0);
  unlink(target.c_str());
}

TEST_F(Shared, LeavesAloneWhatCisternDidNotMake) {
  const int file = open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "precious", 8), 8);
  close(file);
  cistern_shared* shared = nullptr;
  EXPECT_EQ(create(settings(name_, 10), &shared), CISTERN_EXISTS);
  EXPECT_EQ(attached(&shared), CISTERN_MISMATCH);
  cistern_shared_clean(nullptr);
  struct stat seen {};
  EXPECT_EQ(stat(path_.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_size, 8);
  unlink(path_.c_str());
}

TEST_F(Shared, IsNotMappedBeyondTheEndOfItsFile) {
  cistern_shared *mine = created(100'000), *other = nullptr;
  ASSERT_EQ(truncate(path_.c_str(), 50'000), 0);
  EXPECT_EQ(attached(&other), CISTERN_MISMATCH);
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
}

// --- Ends of processes
TEST_F(Shared, OfKilledProcessesIsALeftover) {
  for (const bool by_create : {true, false}) {
    const Baton is_in;
    const pid_t child = begin_child([&] {
      created(1000);
      is_in.pass();
      for (;;) pause();
      return 0;
    });
    is_in.wait();
    cistern_shared* shared = nullptr;
    EXPECT_EQ(create(settings(name_, 10), &shared), CISTERN_EXISTS);
    kill(child, SIGKILL);
    EXPECT_EQ(end_of(child), 1000 + SIGKILL);
    if (!by_create) {
      EXPECT_EQ(attached(&shared), CISTERN_NOT_FOUND);
      EXPECT_FALSE(is_there(path_));
      continue;
    }
    ASSERT_EQ(create(settings(name_, 10), &shared), CISTERN_OK);
    EXPECT_EQ(view_of(shared).bytes, 10u);
    EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
  }
}

void leave_a_leftover(const std::string& name) {
  const Baton is_in;
  const pid_t child = begin_child([&] {
    cistern_shared* shared = nullptr;
    if (create(settings(name, 10), &shared)) return 1;
    is_in.pass();
    for (;;) pause();
    return 0;
  });
  is_in.wait();
  kill(child, SIGKILL);
  EXPECT_EQ(end_of(child), 1000 + SIGKILL);
}

TEST_F(Shared, LeftoversAreCleaned) {
  leave_a_leftover(name_);
  const std::string alive = name_ + "-alive";
  cistern_shared* shared = nullptr;
  ASSERT_EQ(create(settings(alive, 10), &shared), CISTERN_OK);
  std::size_t removed = 0;
  EXPECT_EQ(cistern_shared_clean(&removed), CISTERN_OK);
  EXPECT_GE(removed + !is_there(path_), 1u);
  EXPECT_FALSE(is_there(path_));
  EXPECT_TRUE(is_there(path_of(alive)));
  EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
}

// This very program anew, as a test that does one thing (below).
int run_anew(const char* what, const std::string& name) {
  return in_child([&] {
    setenv("SHARED_TEST_NAME", name.c_str(), 1);
    const std::string filter = std::string("--gtest_filter=SharedAnew.") + what;
    close(STDOUT_FILENO);
    execl("/proc/self/exe", "shared", filter.c_str(), nullptr);
    return 90;
  });
}

TEST(SharedAnew, FirstCall) {
  if (!getenv("SHARED_TEST_NAME")) GTEST_SKIP() << "a part of other tests";
  cistern_shared* shared = nullptr;
  EXPECT_EQ(attach(settings("nobody-has-this", 0), &shared), CISTERN_NOT_FOUND);
}
TEST(SharedAnew, EndsAttached) {
  if (!getenv("SHARED_TEST_NAME")) GTEST_SKIP() << "a part of other tests";
  cistern_shared* shared = nullptr;
  EXPECT_EQ(create(settings(getenv("SHARED_TEST_NAME"), 10), &shared), CISTERN_OK);
  static cistern::shared_buffer<int> later;  // destroyed when all has been left already
  const std::string name = std::string(getenv("SHARED_TEST_NAME")) + "-later";
  later = cistern::shared_buffer<int>::create(name.c_str(), 10).value();
  atexit([] { later.span()[9] = 1; });
}

TEST_F(Shared, AProcessesFirstCallCleans) {
  leave_a_leftover(name_);
  EXPECT_EQ(run_anew("FirstCall", name_), 0);
  EXPECT_FALSE(is_there(path_));
}

TEST_F(Shared, ExitDetaches) {
  EXPECT_EQ(run_anew("EndsAttached", name_), 0);
  EXPECT_FALSE(is_there(path_));
  EXPECT_FALSE(is_there(path_ + "-later"));
}

TEST_F(Shared, AForkedChildHasTheMemoryAndIsNotAttached) {
  cistern_shared* mine = created(10);
  strcpy(memory_of(mine), "kept");
  const Baton gone, may_end;
  const pid_t child = begin_child([&] {
    gone.wait();
    if (strcmp(memory_of(mine), "kept") != 0) return 1;
    if (cistern_shared_detach(mine) != CISTERN_OK) return 2;
    if (const cistern_status again = cistern_shared_detach(mine); again != CISTERN_INVALID) return 3;
    may_end.wait();
    return 0;
  });
  EXPECT_EQ(in_child([&] { return static_cast<int>(cistern_shared_detach(mine)); }), 0);
  EXPECT_TRUE(is_there(path_)) << "the parent is attached";
  EXPECT_EQ(in_child([&] {
              cistern_shared* own = nullptr;
              return attached(&own) || strcmp(memory_of(own), "kept") != 0 || cistern_shared_detach(own);
            }),
            0);
  EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
  EXPECT_FALSE(is_there(path_)) << "the child does not count";
  gone.pass();
  may_end.pass();
  EXPECT_EQ(end_of(child), 0);
}

// Neither by what it inherited: the kernel keeps locks as long as a mapping of their open file.
TEST_F(Shared, AForkedChildKeepsNoDeadParentAttached) {
  const Baton forked, may_end;
  const pid_t parent = begin_child([&] {
    created(10);
    begin_child([&] {
      forked.pass();
      may_end.wait();
      return 0;
    });
    for (;;) pause();
    return 0;
  });
  forked.wait();
  kill(parent, SIGKILL);
  EXPECT_EQ(end_of(parent), 1000 + SIGKILL);
  cistern_shared* shared = nullptr;
  EXPECT_EQ(attached(&shared), CISTERN_NOT_FOUND);
  may_end.pass();
}

// --- Limits
TEST_F(Shared, StandsAFullSystem) {
  cistern_shared* shared = nullptr;
  EXPECT_EQ(create(settings(name_, SIZE_MAX / 4), &shared), CISTERN_NO_MEMORY);
  EXPECT_EQ(create(settings(name_, SIZE_MAX - 1), &shared), CISTERN_NO_MEMORY);
  EXPECT_EQ(cistern_native_error(), EFBIG);
  const int ended = in_child([&] {
    if (unshare(CLONE_NEWNS) || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount("small", "/dev/shm", "tmpfs", 0, "size=1m,nr_inodes=8"))
      return 77;
    cistern_shared *one = nullptr, *two = nullptr;
    if (create(settings(name_, 2 << 20), &one) != CISTERN_NO_MEMORY || cistern_native_error() != ENOSPC) return 1;
    if (create(settings(name_, 600'000), &one)) return 2;
    if (create(settings(name_ + "2", 600'000), &two) != CISTERN_NO_MEMORY) return 3;
    memset(memory_of(one), 1, 600'000);  // reserved: no SIGBUS
    if (cistern_shared_detach(one) || create(settings(name_ + "2", 600'000), &two)) return 4;
    if (cistern_shared_detach(two)) return 5;
    if (umount("/dev/shm") || mount("none", "/dev/shm", "proc", 0, nullptr)) return 6;
    const cistern_status status = create(settings(name_, 10), &one);
    return status == CISTERN_DRIVER ? 0 : 10 + status;
  });
  if (ended == 77) GTEST_SKIP() << "no file system of one's own here";
  EXPECT_EQ(ended, 0);
}

TEST_F(Shared, StandsLimitsOfTheProcess) {
  const auto with_limit = [&](int which, rlim_t limit, std::size_t bytes) {
    return in_child([&] {
      cistern_shared *before = nullptr, *shared = nullptr;
      if (create(settings(name_ + "-before", 10), &before)) return 90;
      const rlimit most{limit, limit};
      setrlimit(static_cast<__rlimit_resource_t>(which), &most);
      const cistern_status status = create(settings(name_, bytes), &shared);
      const int error = cistern_native_error();
      if (is_there(path_) != (status == CISTERN_OK)) return 91;
      if (cistern_shared_detach(before)) return 92;  // no descriptor is needed for that
      return status == (error == EMFILE ? CISTERN_DRIVER : CISTERN_NO_MEMORY) ? error : 93;
    });
  };
  EXPECT_EQ(with_limit(RLIMIT_NOFILE, 3, 10), EMFILE);
  EXPECT_EQ(with_limit(RLIMIT_FSIZE, 1 << 20, 2 << 20), EFBIG) << "and no SIGXFSZ";
  if (kHostPoolServes) EXPECT_EQ(with_limit(RLIMIT_AS, 1, 64 << 20), ENOMEM);
  EXPECT_FALSE(is_there(path_of(name_ + "-before")));
}

void do_nothing(int) {}

TEST_F(Shared, StandsSignals) {
  struct sigaction before {
  }, ours{};
  ours.sa_handler = do_nothing;
  sigaction(SIGALRM, &ours, &before);
  const itimerval often{{0, 200}, {0, 200}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 5; ++i) {
    cistern_shared *mine = created(64 << 20), *other = nullptr;
    EXPECT_EQ(attached(&other), CISTERN_OK);
    EXPECT_EQ(cistern_shared_detach(mine), CISTERN_OK);
    EXPECT_EQ(cistern_shared_detach(other), CISTERN_OK);
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_F(Shared, LeavesErrnoAndTheFirstDescriptorsAlone) {
  EXPECT_EQ(in_child([&] {
              close(0);
              close(1);
              errno = 99;
              cistern_shared *mine = created(10), *other = nullptr;
              if (attached(&other) || errno != 99 || fcntl(0, F_GETFD) != -1 || fcntl(1, F_GETFD) != -1) return 1;
              errno = 99;
              for (int file = 3; file < 64; ++file)
                if (const int flags = fcntl(file, F_GETFD); flags != -1 && !(flags & FD_CLOEXEC)) {
                  char target[256] = {}, link[64];
                  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
                  if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, "/dev/shm")) return 2;
                }
              errno = 99;
              return cistern_shared_detach(mine) || cistern_shared_detach(other) || errno != 99 ? 3 : 0;
            }),
            0);
}

TEST_F(Shared, ManyThreadsAgree) {
  std::atomic<unsigned> wrong{0}, created_it{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        cistern_shared* shared = nullptr;
        const bool creates = (i + t) % 3 == 0;
        const cistern_status status = creates ? create(settings(name_, 5000), &shared) : attached(&shared);
        wrong += status != CISTERN_OK && status != (creates ? CISTERN_EXISTS : CISTERN_NOT_FOUND);
        created_it += creates && shared;
        if (shared) {
          auto view = cistern::sized<cistern_shared_view>();
          wrong += cistern_shared_get(shared, &view) != CISTERN_OK || view.bytes != 5000;
          static_cast<char*>(view.address)[t * 8] = 1;
          wrong += cistern_shared_detach(shared) != CISTERN_OK;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(created_it, 0u);
}

// --- C++
struct Cell {
  int level;
  double density;
};
struct OtherCell {
  int level;
  double density;
};

TEST_F(Shared, BuffersHaveTypes) {
  auto mine = cistern::shared_buffer<Cell>::create(name_.c_str(), 1000);
  ASSERT_TRUE(mine) << mine.status();
  EXPECT_EQ(mine->size(), 1000u);
  mine->span()[999] = {3, 0.5};
  auto other = cistern::shared_buffer<const Cell>::attach(name_.c_str());
  ASSERT_TRUE(other);
  static_assert(std::is_same_v<decltype(other->span()), std::span<const Cell>>);
  EXPECT_EQ(other->span()[999].density, 0.5);
  EXPECT_EQ(cistern::shared_buffer<OtherCell>::attach(name_.c_str()).status(), CISTERN_MISMATCH);
  EXPECT_EQ(cistern::shared_buffer<long>::attach(name_.c_str()).status(), CISTERN_MISMATCH);
  cistern::shared_options count;
  count.count = 999;
  EXPECT_EQ(cistern::shared_buffer<Cell>::attach(name_.c_str(), count).status(), CISTERN_MISMATCH);
  EXPECT_EQ(cistern::shared_buffer<Cell>::create(name_.c_str(), 10).status(), CISTERN_EXISTS);
  EXPECT_EQ(cistern::shared_buffer<Cell>::create(name_.c_str(), SIZE_MAX / 8).status(), CISTERN_NO_MEMORY);
  cistern::shared_buffer<Cell> moved = std::move(*mine);
  EXPECT_FALSE(*mine);
  moved = cistern::shared_buffer<Cell>();
  EXPECT_TRUE(is_there(path_));
  EXPECT_TRUE(other->detach());
  EXPECT_FALSE(is_there(path_));
  EXPECT_FALSE(*other);
  static_assert(cistern::shared_type<float>::number != cistern::shared_type<int>::number);
  static_assert(cistern::shared_type<long>::number == cistern::shared_type<long long>::number);
}

// --- Device memory. A process that has used CUDA does not fork: all is done in children.
class SharedOnDevice : public Shared {
 protected:
  void SetUp() override {
    Shared::SetUp();
    if (!simcuda_function("simcuda_set")) GTEST_SKIP() << "no simulated driver";
  }
  cistern_shared_settings of_device(std::size_t bytes) const { return settings(name_, bytes, CISTERN_DEVICE); }
  static bool holds(cistern_shared* shared, char value, std::size_t bytes) {
    std::vector<char> read(bytes, static_cast<char>(~value));
    return !cistern_copy(read.data(), view_of(shared).address, bytes, 0, nullptr) &&
           std::count(read.begin(), read.end(), value) == static_cast<std::ptrdiff_t>(bytes);
  }
  static bool set(cistern_shared* shared, char value, std::size_t bytes) {
    const std::vector<char> wanted(bytes, value);
    return !cistern_copy(view_of(shared).address, wanted.data(), bytes, 0, nullptr);
  }
};
constexpr std::size_t kDeviceBytes = 3'000'000;

TEST_F(SharedOnDevice, IsTheSameMemoryForAll) {
  const Baton made, opened, tried, closed;
  const pid_t owner = begin_child([&] {
    cistern_shared *shared = nullptr, *other = nullptr;
    if (create(of_device(kDeviceBytes), &shared)) return 1;
    if (!view_of(shared).owner || !view_of(shared).owner_lives || !holds(shared, 0, kDeviceBytes)) return 2;
    if (!set(shared, 5, kDeviceBytes) || attach(of_device(0), &other)) return 3;
    if (view_of(other).address != view_of(shared).address || view_of(other).owner) return 4;
    if (cistern_shared_detach(shared) != CISTERN_BUSY || cistern_shared_detach(other)) return 5;
    if (attach(settings(name_, 0), &other) != CISTERN_MISMATCH) return 6;
    made.pass();
    opened.wait();
    if (!holds(shared, 6, kDeviceBytes) || cistern_shared_detach(shared) != CISTERN_BUSY) return 7;
    if (!holds(shared, 6, kDeviceBytes)) return 8;
    tried.pass();
    closed.wait();
    return static_cast<int>(cistern_shared_detach(shared));
  });
  const pid_t other = begin_child([&] {
    made.wait();
    cistern_shared *shared = nullptr, *again = nullptr;
    if (attach(of_device(kDeviceBytes), &shared)) return 20 + cistern_native_error() % 70;
    if (!holds(shared, 5, kDeviceBytes) || !view_of(shared).owner_lives || !set(shared, 6, kDeviceBytes)) return 2;
    if (attach(of_device(0), &again) || !holds(again, 6, kDeviceBytes) || cistern_shared_detach(again)) return 3;
    opened.pass();
    tried.wait();
    const cistern_status status = cistern_shared_detach(shared);
    closed.pass();
    return static_cast<int>(status);
  });
  EXPECT_EQ(end_of(other), 0);
  EXPECT_EQ(end_of(owner), 0);
}

TEST_F(SharedOnDevice, GoesWithItsOwner) {
  const Baton made, opened, died;
  const pid_t owner = begin_child([&] {
    cistern_shared* shared = nullptr;
    if (create(of_device(kDeviceBytes), &shared)) return 1;
    made.pass();
    for (;;) pause();
    return 0;
  });
  made.wait();
  const pid_t other = begin_child([&] {
    cistern_shared *shared = nullptr, *late = nullptr;
    if (attach(of_device(0), &shared)) return 1;
    opened.pass();
    died.wait();
    if (view_of(shared).owner_lives || attach(of_device(0), &late) != CISTERN_NOT_FOUND) return 2;
    if (create(of_device(10), &late) != CISTERN_EXISTS) return 3;
    if (cistern_shared_detach(shared) || is_there(path_)) return 4;
    return create(of_device(10), &late) || cistern_shared_detach(late) ? 5 : 0;
  });
  opened.wait();
  kill(owner, SIGKILL);
  EXPECT_EQ(end_of(owner), 1000 + SIGKILL);
  died.pass();
  EXPECT_EQ(end_of(other), 0);
}

TEST_F(SharedOnDevice, InAForkedChildIsNone) {
  EXPECT_EQ(in_child([&] {
              cistern_shared* shared = nullptr;
              if (create(of_device(kDeviceBytes), &shared)) return 1;
              const int child = in_child([&] {
                if (view_of(shared).owner || view_of(shared).owner_lives) return 1;
                return static_cast<int>(cistern_shared_detach(shared));
              });
              if (child || !holds(shared, 0, kDeviceBytes)) return 10 + child;
              return static_cast<int>(cistern_shared_detach(shared));
            }),
            0);
}

// Whatever the driver refuses, no memory and no name is left.
TEST_F(SharedOnDevice, StandsEachCallFailingInTurn) {
  EXPECT_EQ(in_child([&] {
              unsigned failed = 0;
              cistern_shared* shared = nullptr;
              if (create(of_device(10), &shared) || cistern_shared_detach(shared)) return 1;
              auto before = cistern::sized<cistern_statistics>(), after = cistern::sized<cistern_statistics>();
              cistern_get_statistics(CISTERN_DEVICE, &before);
              for (int every = 1; every <= 20; ++every) {
                simcuda_set_value("fail_every", every);
                const cistern_status status = create(of_device(kDeviceBytes), &shared);
                simcuda_set_value("fail_every", 0);
                failed += status != CISTERN_OK;
                if (is_there(path_) != (status == CISTERN_OK)) return 2;
                if (shared && cistern_shared_detach(shared)) return 3;
              }
              cistern_get_statistics(CISTERN_DEVICE, &after);
              return failed < 2 ? 4 : after.live_blocks != before.live_blocks ? 5 : 0;
            }),
            0);
}

TEST_F(SharedOnDevice, BuffersHaveADevicePointer) {
  EXPECT_EQ(in_child([&] {
              cistern::shared_options options;
              options.kind = CISTERN_DEVICE;
              auto mine = cistern::shared_buffer<float>::create(name_.c_str(), 1000, options);
              if (!mine || !mine->device_pointer() || !mine->span().empty() || !mine->owner_lives()) return 1;
              auto other = cistern::shared_buffer<float>::attach(name_.c_str(), options);
              if (!other || other->device_pointer() != mine->device_pointer() || other->size() != 1000) return 2;
              if (mine->detach().status() != CISTERN_BUSY || !other->detach()) return 3;
              return mine->detach() ? 0 : 4;
            }),
            0);
}

TEST_F(Shared, WithoutADriverDeviceMemoryIsRefused) {
  if (simcuda_function("simcuda_set")) GTEST_SKIP() << "there is the simulated driver";
  cistern_shared* shared = nullptr;
  EXPECT_EQ(create(settings(name_, 10, CISTERN_DEVICE), &shared), CISTERN_NO_DRIVER);
}

}  // namespace
