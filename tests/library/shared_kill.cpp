// Shared buffers while processes are killed at random: no byte that somebody acknowledged is lost as long as anybody is
// attached, and nothing is left behind.
//
//   shared_kill ROUNDS [SEED]
//
// A round has four writers, each with two blocks in the buffer that it fills in turn, and a pipe, by which it says
// which of them is whole. Who created the buffer, and any of the writers, is killed at a random moment.
//   kept round: the supervisor is attached, and looks at the end for all that was acknowledged.
//   free round: nobody is attached for good; writers create the buffer where there is none, and at the end all are
//               killed. What is left is removed by the next call with that name, or by the first call of a new process.
//   quiet round: the same, but nobody is killed: all leave at about the same time, and nothing may be left.
// Whoever is attached finds under the name the very memory that it has.
#include <cistern/cistern.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cistern/result.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace {

constexpr int kWriters = 4, kWords = 600;  // a block is larger than a page: half-written ones occur

struct Block {
  std::uint64_t words[kWords];
};
struct Buffer {
  std::atomic<bool> ends;
  Block blocks[kWriters][2];
};

std::uint64_t word_of(std::uint64_t number, int writer, int i) {
  std::uint64_t x = number * 0x9E3779B97F4A7C15ull + static_cast<unsigned>(writer * kWords + i);
  x ^= x >> 29;
  return x * 0xBF58476D1CE4E5B9ull;
}
void write_block(Block& block, std::uint64_t number, int writer) {
  for (int i = 0; i < kWords; ++i) block.words[i] = word_of(number, writer, i);
}
bool is_block(const Block& block, std::uint64_t number, int writer) {
  for (int i = 0; i < kWords; ++i)
    if (block.words[i] != word_of(number, writer, i)) return false;
  return true;
}

// Children that are left end with the pipe that nobody reads any more.
[[noreturn]] void fail(const std::string& what, long number = 0) {
  fprintf(stderr, "FAILED: %s (%ld)\n", what.c_str(), number);
  exit(1);
}
// In a child: the supervisor looks at how it ended.
[[noreturn]] void fail_here(const char* what, long number) {
  fprintf(stderr, "FAILED in %d: %s (%ld)\n", getpid(), what, number);
  _exit(1);
}

cistern_shared_settings settings_of(const std::string& name) {
  cistern_shared_settings of{};
  of.struct_bytes = sizeof of;
  of.name = name.c_str();
  of.kind = CISTERN_HOST;
  of.bytes = sizeof(Buffer);
  of.type = 4711;
  return of;
}
std::string path_of(const std::string& name) { return "/dev/shm/cistern-" + std::to_string(geteuid()) + "-" + name; }
bool is_there(const std::string& name) {
  struct stat seen {};
  return lstat(path_of(name).c_str(), &seen) == 0;
}
Buffer* memory_of(cistern_shared* shared) {
  auto view = cistern::sized<cistern_shared_view>();
  return cistern_shared_get(shared, &view) == CISTERN_OK ? static_cast<Buffer*>(view.address) : nullptr;
}

// --- A writer
struct Attached {
  cistern_shared* shared = nullptr;
  bool created = false;
};

Attached attach_or_create(const std::string& name, bool may_create) {
  const cistern_shared_settings of = settings_of(name);
  for (;;) {
    Attached got;
    const cistern_status attached = cistern_shared_attach(&of, &got.shared);
    if (attached == CISTERN_OK) return got;
    if (attached != CISTERN_NOT_FOUND || !may_create) fail_here("attach", attached);
    const cistern_status created = cistern_shared_create(&of, &got.shared);
    got.created = true;
    if (created == CISTERN_OK) return got;
    if (created != CISTERN_EXISTS) fail_here("create", created);
  }
}

// Through the name, as others would find it.
bool lies_under(const std::string& name, const Buffer* buffer, const Block& block, std::uint64_t first_word) {
  const int file = open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC);
  const auto at =
      sysconf(_SC_PAGESIZE) + (reinterpret_cast<const char*>(&block) - reinterpret_cast<const char*>(buffer));
  std::uint64_t found = 0;
  const bool read = file >= 0 && pread(file, &found, sizeof found, at) == static_cast<ssize_t>(sizeof found);
  close(file);
  return read && found == first_word;
}

// Until the clock's next whole fifth of a millisecond: of those who wait some leave at the same moment.
void wait_for_the_others() {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 5000 + time.tv_nsec / 200'000;
  };
  for (const long begin = now(); now() == begin;) continue;
}

enum class Round { kept, free, quiet };

[[noreturn]] void write_until_killed(const std::string& name, int writer, int pipe, Round round, unsigned seed) {
  std::mt19937 random(seed);
  const bool kept = round == Round::kept;
  unsigned turns = round == Round::quiet ? 1 + random() % 6 : UINT32_MAX;
  for (std::uint64_t number = 1;;) {
    const Attached attached = attach_or_create(name, !kept);
    Buffer* const buffer = memory_of(attached.shared);
    if (!buffer) fail_here("no memory", 0);
    // In a kept round what this writer wrote while it was attached before is still there.
    if (kept && number > 1 && !is_block(buffer->blocks[writer][(number - 1) % 2], number - 1, writer))
      fail_here("its own block", static_cast<long>(number));
    for (unsigned i = 1 + random() % 3; i; --i, ++number) {
      write_block(buffer->blocks[writer][number % 2], number, writer);
      if (write(pipe, &number, sizeof number) != static_cast<ssize_t>(sizeof number)) fail_here("pipe", errno);
      const Block& written = buffer->blocks[writer][number % 2];
      if (!is_block(written, number, writer)) fail_here("just written", 0);
      if (!lies_under(name, buffer, written, word_of(number, writer, 0))) fail_here("not under its name", 0);
    }
    const bool ends = buffer->ends.load() || !--turns;
    if (round == Round::quiet) wait_for_the_others();
    if (random() % 16 == 0) exit(0);  // attached still
    if (const cistern_status status = cistern_shared_detach(attached.shared)) fail_here("detach", status);
    if (ends) _exit(0);
    if (random() % 4 == 0) usleep(random() % 200);
  }
}

// --- The supervisor
struct Writer {
  pid_t process = 0;
  int pipe = -1;
  std::uint64_t acknowledged = 0;
  bool was_killed = false;

  void begin(const std::string& name, int number, Round round, unsigned seed) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) fail("pipe", errno);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    process = fork();
    if (process < 0) fail("fork", errno);
    if (!process) write_until_killed(name, number, ends[1], round, seed);
    close(ends[1]);
    pipe = ends[0];
  }
  void listen() {
    for (std::uint64_t number; read(pipe, &number, sizeof number) == static_cast<ssize_t>(sizeof number);)
      acknowledged = number;
  }
  void kill_it() {
    was_killed = true;
    kill(process, SIGKILL);
  }
  // Pipes hold 8,192 numbers: nobody waits for us to read.
  void end() {
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      listen();
      usleep(50);
    }
    listen();
    close(pipe);
    const bool as_meant = WIFEXITED(status) ? WEXITSTATUS(status) == 0 : was_killed;
    if (!as_meant) fail("a writer ended otherwise", status);
  }
};

struct Counts {
  unsigned long kills = 0, acknowledged = 0, leftovers = 0;
} counts;

pid_t begin_creator(const std::string& name) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC)) fail("pipe", errno);
  const pid_t creator = fork();
  if (!creator) {
    const cistern_shared_settings of = settings_of(name);
    cistern_shared* shared = nullptr;
    if (const cistern_status status = cistern_shared_create(&of, &shared)) fail_here("creator", status);
    close(ready[1]);
    for (;;) pause();
  }
  close(ready[1]);
  char none;
  while (read(ready[0], &none, 1) < 0 && errno == EINTR) continue;
  close(ready[0]);
  return creator;
}

void kept_round(const std::string& name, std::mt19937& random) {
  const pid_t creator = begin_creator(name);
  cistern_shared* shared = nullptr;
  const cistern_shared_settings of = settings_of(name);
  if (const cistern_status status = cistern_shared_attach(&of, &shared)) fail("attach to the creator's", status);
  std::array<Writer, kWriters> writers;
  for (int i = 0; i < kWriters; ++i) writers[static_cast<unsigned>(i)].begin(name, i, Round::kept, random());
  const unsigned creator_dies_at = random() % kWriters;
  for (unsigned i = 0; i < kWriters; ++i) {
    usleep(random() % 800);
    if (i == creator_dies_at) kill(creator, SIGKILL);
    if (random() % 4) writers[random() % kWriters].kill_it(), ++counts.kills;
  }
  Buffer* const buffer = memory_of(shared);
  buffer->ends = true;
  waitpid(creator, nullptr, 0);
  for (int i = 0; i < kWriters; ++i) {
    Writer& writer = writers[static_cast<unsigned>(i)];
    writer.end();
    counts.acknowledged += writer.acknowledged;
    if (writer.acknowledged && !is_block(buffer->blocks[i][writer.acknowledged % 2], writer.acknowledged, i))
      fail("an acknowledged block is lost", static_cast<long>(writer.acknowledged));
  }
  if (!is_there(name)) fail("the name went while somebody was attached");
  if (const cistern_status status = cistern_shared_detach(shared)) fail("detach", status);
  if (is_there(name)) fail("the last one left it behind");
}

// A new process, whose first call for shared buffers is about another name.
void let_a_new_process_clean(const char* self) {
  const pid_t process = fork();
  if (!process) {
    execl(self, self, "first-call", nullptr);
    _exit(1);
  }
  int status = 0;
  waitpid(process, &status, 0);
  if (status) fail("the new process", status);
}

void free_round(const std::string& name, std::mt19937& random, const char* self) {
  std::array<Writer, kWriters> writers;
  for (int i = 0; i < kWriters; ++i) writers[static_cast<unsigned>(i)].begin(name, i, Round::free, random());
  for (unsigned i = 0; i < kWriters; ++i) {
    usleep(random() % 800);
    if (random() % 4) writers[random() % kWriters].kill_it();
  }
  for (Writer& writer : writers) writer.kill_it(), ++counts.kills;
  for (Writer& writer : writers) writer.end();
  counts.leftovers += is_there(name);
  if (random() % 8 == 0) return let_a_new_process_clean(self);
  const cistern_shared_settings of = settings_of(name);
  cistern_shared* shared = nullptr;
  const cistern_status found = cistern_shared_attach(&of, &shared);
  if (found != CISTERN_NOT_FOUND) fail("attached to what nobody has", found);
}

void quiet_round(const std::string& name, std::mt19937& random) {
  std::array<Writer, kWriters> writers;
  for (int i = 0; i < kWriters; ++i) writers[static_cast<unsigned>(i)].begin(name, i, Round::quiet, random());
  for (Writer& writer : writers) writer.end();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  if (strcmp(arguments[1], "first-call") == 0) {
    const std::string nobodys = "nobody-has-this";
    const cistern_shared_settings of = settings_of(nobodys);
    cistern_shared* shared = nullptr;
    return cistern_shared_attach(&of, &shared) != CISTERN_NOT_FOUND;
  }
  const long rounds = atol(arguments[1]);
  const unsigned seed = count > 2 ? static_cast<unsigned>(atol(arguments[2])) : std::random_device{}();
  printf("seed %u\n", seed);
  fflush(stdout);
  std::mt19937 random(seed);
  for (long round = 0; round < rounds; ++round) {
    const std::string name = "kill-" + std::to_string(getpid()) + "-" + std::to_string(round % 2);
    if (round % 3 == 0) free_round(name, random, arguments[0]);
    if (round % 3 == 1) kept_round(name, random);
    if (round % 3 == 2) quiet_round(name, random);
    if (is_there(name)) fail("left behind after round", round);
  }
  printf("%ld rounds, %lu kills, %lu blocks acknowledged, %lu leftovers: none is left\n", rounds, counts.kills,
         counts.acknowledged, counts.leftovers);
  return 0;
}
