// How fast the host's side of a staged copy is: from pageable memory that no cache holds into a ring of chunks, as of
// pinned memory, and back. One thread with memcpy, one with streaming stores, then the crew with 0..n helpers and
// either kind of store, with the kind that it measures itself, and by the kernel (pool/staging/guarded_copy.hpp).
// Prints tables: staging_host [SECONDS_PER_CELL].
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pool/staging/copy_crew.hpp"

namespace {

using cistern::staging::CopyCrew;
using cistern::staging::Direction;
using cistern::staging::Stores;

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;
// Larger than the caches of today's machines: a source is out of them when its turn comes again.
constexpr std::size_t kSourceBytes = 512 * kMiB;
// As a ring of staging has: the chunks are used again and again.
constexpr std::size_t kRingChunks = 4;

double now_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

char* map_touched(std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::perror("mmap"), std::exit(1);
  std::memset(at, 1, bytes);
  return static_cast<char*>(at);
}

using Copy = std::function<void(char* to, const char* from, std::size_t bytes)>;

struct Way {
  std::string name;
  Copy copy;
};

// Of many memory-bound runs the median of chunks' times: other processes are on the machine.
double gib_per_second(const Way& way, Direction direction, char* pageable, char* ring, std::size_t chunk,
                      double seconds) {
  std::vector<double> times;
  const std::size_t chunks = kSourceBytes / chunk;
  const double begin = now_seconds();
  for (std::size_t i = 0; i < 40 || now_seconds() - begin < seconds; ++i) {
    char* const large = pageable + i % chunks * chunk;
    char* const staged = ring + i % kRingChunks * chunk;
    const double start = now_seconds();
    direction == Direction::to_device ? way.copy(staged, large, chunk) : way.copy(large, staged, chunk);
    times.push_back(now_seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return static_cast<double>(chunk) / times[times.size() / 2] / (1 << 30);
}

unsigned cpus() {
  cpu_set_t mask;
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? static_cast<unsigned>(CPU_COUNT(&mask)) : 1;
}

Way crew_way(const std::string& name, CopyCrew& crew, Direction direction) {
  return {name, [&crew, direction](char* to, const char* from, std::size_t bytes) {
            crew.copy({to}, {from}, {bytes}, direction);
          }};
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 0.3;
  std::vector<std::size_t> chunks;
  for (std::size_t chunk = 64 * kKiB; chunk <= 64 * kMiB; chunk *= 4) chunks.push_back(chunk);
  chunks.insert(chunks.end() - 1, 4 * kMiB);
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  char* const pageable = map_touched(kSourceBytes);
  char* const ring = map_touched(kRingChunks * chunks.back());
  const unsigned helpers_max = std::min(cpus() - 1, CopyCrew::kHelpersMost);
  std::printf("%u CPUs; GiB/s, median of the chunks' times\n", helpers_max + 1);
  for (const Direction direction : {Direction::to_device, Direction::to_host}) {
    std::vector<Way> ways;
    ways.push_back({"memcpy", [](char* to, const char* from, std::size_t bytes) { std::memcpy(to, from, bytes); }});
    ways.push_back({"streaming", [](char* to, const char* from, std::size_t bytes) {
                      streaming_copy(to, from, bytes, Stores::streaming);
                    }});
    std::vector<std::unique_ptr<CopyCrew>> crews;
    const auto add = [&](const std::string& name, unsigned helpers, std::optional<Stores> stores) -> CopyCrew& {
      const auto create = [](pthread_t* thread, std::size_t, void* (*main)(void*), void* of) {
        return pthread_create(thread, nullptr, main, of);
      };
      crews.push_back(std::make_unique<CopyCrew>(
          CopyCrew::Settings{.helpers_max = helpers, .stores = stores, .threads = {create, pthread_join}}));
      ways.push_back(crew_way(name, *crews.back(), direction));
      return *crews.back();
    };
    CopyCrew* measured = nullptr;
    for (unsigned helpers = 0; helpers <= helpers_max; ++helpers) {
      const std::string threads = std::to_string(helpers + 1) + (helpers == 0 ? " thread" : " threads");
      add(threads + ", cached", helpers, Stores::cached);
      add(threads + ", streaming", helpers, Stores::streaming);
      measured = &add(threads + ", measured", helpers, std::nullopt);
      CopyCrew& guarded = *crews.back();
      ways.push_back(
          {threads + ", by the kernel", [&guarded, direction](char* to, const char* from, std::size_t bytes) {
             guarded.copy({to}, {from}, {bytes}, direction,
                          direction == Direction::to_device ? cistern::staging::Guarded::source
                                                            : cistern::staging::Guarded::target);
           }});
    }
    std::printf("\n%-24s", direction == Direction::to_device ? "to a device: into a ring" : "to the host: from a ring");
    for (const std::size_t chunk : chunks)
      std::printf(chunk < kMiB ? "%5zu KiB" : "%5zu MiB", chunk < kMiB ? chunk / kKiB : chunk / kMiB);
    for (const Way& way : ways) {
      std::printf("\n%-24s", way.name.c_str());
      for (const std::size_t chunk : chunks) {
        std::printf("%9.2f", gib_per_second(way, direction, pageable, ring, chunk, seconds));
        std::fflush(stdout);
      }
    }
    const auto figures = measured->stores_figures(direction);
    std::printf("\nchosen by the last: %s (cached %.2f, streaming %.2f)\n",
                figures.stores == Stores::streaming ? "streaming" : "cached", figures.cached_gib_per_second,
                figures.streaming_gib_per_second);
    for (const auto& crew : crews) crew->stop();
  }
}
