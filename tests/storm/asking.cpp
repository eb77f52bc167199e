// Actor: every call that counts, reports or trims, while the others are at work.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/storm/cistern_calls.hpp"
#include "tests/storm/storm.hpp"

namespace storm {
namespace {

constexpr uint64_t kSane = uint64_t{1} << 45;  // what a difference that went below zero is not

void ask_statistics(Random& random) {
  const auto kind = static_cast<cistern_kind>(random.below(4));
  const cistern_statistics figures = statistics_of(kind);
  if (figures.live_blocks > kSane || figures.live_bytes > kSane || figures.pooled_bytes > kSane ||
      figures.allocations > kSane || figures.frees > kSane)
    fail("figures of kind %d: %llu blocks, %llu bytes live, %llu allocations, %llu frees", kind,
         static_cast<unsigned long long>(figures.live_blocks), static_cast<unsigned long long>(figures.live_bytes),
         static_cast<unsigned long long>(figures.allocations), static_cast<unsigned long long>(figures.frees));
}

void ask_report(Random& random) {
  if (!cistern.report) return;
  static std::atomic<unsigned> reports{0};
  const unsigned number = reports++;
  const bool json = random.below(2);
  char path[300];
  snprintf(path, sizeof path, "%s/asked-%d-%u.%s", scratch_folder(), getpid(), number, json ? "json" : "txt");
  const cistern_status status = cistern.report(path, json ? CISTERN_JSON : CISTERN_TEXT);
  if (status) fail("cistern_report to %s: %s", path, cistern.status_text(status));
  if (!json || number % 16) unlink(path);  // the driver reads those that stay
}

void ask_malloc_info() {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (malloc_info(0, stream)) fail("malloc_info failed");
  fclose(stream);
  if (!strstr(text, "</malloc>")) fail("malloc_info said: %.200s", text);
  free(text);
}

void turn(Random& random) {
  ask_something(random);
  usleep(random.below(2000));
}

const Registered asking({"asking", 2, turn, nullptr, nullptr});

}  // namespace

void ask_something(Random& random) {
  if (random.below(40) == 0) return ask_report(random);  // the slowest by far
  switch (random.below(12)) {
    case 1:
      return ask_malloc_info();
    case 2:
      malloc_trim(random.below(100000));
      return;
    case 3:
      if (cistern.trim) cistern.trim(static_cast<cistern_kind>(random.below(4)), random.below(1 << 20), nullptr);
      return;
    case 4:
    case 5:
    case 6:
      return ask_statistics(random);
    default:
      if (mallinfo2().uordblks > kSane) fail("mallinfo2: %zu bytes in use", mallinfo2().uordblks);
  }
}

// Empty: exact.
static std::string what_is_wrong(Random& random) {
  constexpr unsigned kBlocks = 700;
  void* blocks[kBlocks];
  const cistern_statistics before = statistics_of(CISTERN_HOST);
  uint64_t bytes = 0;
  for (void*& block : blocks) {
    const size_t wanted = 1 + random.below(random.below(20) ? 2000 : 200000);
    block = malloc(wanted);
    memset(block, static_cast<int>(random.below(256)), wanted);
    bytes += malloc_usable_size(block);
  }
  const cistern_statistics with = statistics_of(CISTERN_HOST);
  for (void* block : blocks) free(block);
  const cistern_statistics after = statistics_of(CISTERN_HOST);
  const uint64_t figures[] = {with.allocations - before.allocations, with.live_blocks - before.live_blocks,
                              with.live_bytes - before.live_bytes, after.frees - with.frees};
  const uint64_t wanted[] = {kBlocks, kBlocks, bytes, kBlocks};
  char text[300] = "";
  if (memcmp(figures, wanted, sizeof wanted) != 0)
    snprintf(text, sizeof text,
             "%u blocks of %llu bytes made %lld allocations, %lld live blocks of %lld bytes and %lld frees more",
             kBlocks, static_cast<unsigned long long>(bytes), static_cast<long long>(figures[0]),
             static_cast<long long>(figures[1]), static_cast<long long>(figures[2]),
             static_cast<long long>(figures[3]));
  else if (after.live_blocks != before.live_blocks || after.live_bytes != before.live_bytes)
    snprintf(text, sizeof text, "%lld blocks of %lld bytes stayed",
             static_cast<long long>(after.live_blocks - before.live_blocks),
             static_cast<long long>(after.live_bytes - before.live_bytes));
  return text;
}

// A thread of the simulated driver's may still be ending, and free what it had meanwhile; a wrong count stays wrong.
void require_exact_figures(Random& random, const char* when) {
  if (!cistern.get_statistics || others_allocate()) return;
  std::string wrong;
  for (int look = 0; look < 10; ++look) {
    wrong = what_is_wrong(random);
    if (wrong.empty()) return;
    usleep(100'000);
  }
  fail("%s: %s", when, wrong.c_str());
}

}  // namespace storm
