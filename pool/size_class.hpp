// Two sets of size classes. Inside, a recycled chunk has the size of its class: multiples of 512 up to 4 KiB, then
// eight per doubling, so that at most 1/9 of a chunk is waste.
//
// The 21 size classes that reports speak of: a fixed table, so that reports of different runs compare class by class.
// They double from 4 KiB to 512 MiB, except that the octaves below 1 MiB and below 512 MiB are each cut in two.
// Upper bounds belong to their class (4 KiB is in "0-4 KiB"); only 512 MiB itself counts as "512 MiB and more".
#pragma once
#include <cstdint>

namespace cistern {

constexpr int kReportClasses = 21;

namespace detail {
constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::uint64_t kReportClassLimits[kReportClasses - 1] = {
    4 * kKiB,   8 * kKiB,   16 * kKiB,  32 * kKiB,  64 * kKiB,  128 * kKiB,    256 * kKiB,
    512 * kKiB, 768 * kKiB, 1 * kMiB,   2 * kMiB,   4 * kMiB,   8 * kMiB,      16 * kMiB,
    32 * kMiB,  64 * kMiB,  128 * kMiB, 256 * kMiB, 384 * kMiB, 512 * kMiB - 1};
constexpr const char* kReportClassNames[kReportClasses] = {
    "0-4 KiB",     "4-8 KiB",     "8-16 KiB",     "16-32 KiB",   "32-64 KiB",   "64-128 KiB",  "128-256 KiB",
    "256-512 KiB", "512-768 KiB", "768-1024 KiB", "1-2 MiB",     "2-4 MiB",     "4-8 MiB",     "8-16 MiB",
    "16-32 MiB",   "32-64 MiB",   "64-128 MiB",   "128-256 MiB", "256-384 MiB", "384-512 MiB", "512 MiB and more"};
}  // namespace detail

constexpr int report_class(std::uint64_t bytes) {
  int low = 0, high = kReportClasses - 1;  // the first limit that is not below `bytes`
  while (low < high) {
    const int middle = (low + high) / 2;
    if (detail::kReportClassLimits[middle] < bytes)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

constexpr const char* report_class_name(int size_class) { return detail::kReportClassNames[size_class]; }

static_assert(report_class(0) == 0 && report_class(4096) == 0 && report_class(4097) == 1);
static_assert(report_class(2 * detail::kMiB) == 10 && report_class(64 * detail::kMiB) == 15);
static_assert(report_class(512 * detail::kMiB - 1) == 19 && report_class(512 * detail::kMiB) == 20);

// The size of the smallest chunk for `bytes` (1 ... 2^62).
constexpr std::uint64_t chunk_bytes_for(std::uint64_t bytes) {
  const int doubling = bytes > 4096 ? 63 - __builtin_clzll(bytes - 1) : 0;
  const std::uint64_t step = doubling ? std::uint64_t{1} << (doubling - 3) : 512;
  return (bytes + step - 1) & ~(step - 1);
}

static_assert(chunk_bytes_for(1) == 512 && chunk_bytes_for(512) == 512 && chunk_bytes_for(4095) == 4096);
static_assert(chunk_bytes_for(4096) == 4096 && chunk_bytes_for(4097) == 4608 && chunk_bytes_for(8192) == 8192);
static_assert(chunk_bytes_for(8193) == 9216 && chunk_bytes_for(100'000'000) == 96 * detail::kMiB);

}  // namespace cistern
