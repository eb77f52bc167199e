// See out_of_memory.hpp. There is no memory for this line either, nor room on the stack, which may be a small one: as
// one thread says it once, all is read and written in memory that is kept for it.
#include "shim/host/out_of_memory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>

#include "pool/base/page_size.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern::host {
namespace {

alignas(16) constinit char scratch[4096] = {};

constexpr std::string_view kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};

class Line {
 public:
  void add(std::string_view text) {
    const std::size_t fits = std::min(text.size(), sizeof text_ - bytes_);
    memcpy(text_ + bytes_, text.data(), fits);
    bytes_ += fits;
  }
  void add_number(std::uint64_t number) {
    char digits[24];
    add({digits, static_cast<std::size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
  }
  // Tenths of the largest unit that is reached, rounded to the nearest; bytes below 1 KiB.
  void add_bytes(std::uint64_t bytes) {
    std::uint64_t unit = 1;
    int power = 0;
    for (; power < 4 && bytes / unit >= 1024; ++power) unit *= 1024;
    const std::uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
    add_number(tenths / 10);
    if (power) add(".");
    if (power) add_number(tenths % 10);
    add(kUnits[power]);
  }
  std::string_view text() const { return {text_, bytes_}; }

 private:
  char text_[600] = {};
  std::size_t bytes_ = 0;
};

// The `field`-th number of /proc/self/statm, in bytes.
std::uint64_t own_memory(int field) {
  const SmallFile<128> file("/proc/self/statm");
  const char* at = file.text();
  char* end = nullptr;
  std::uint64_t pages = 0;
  for (int i = 0; i < field; ++i, at = end) pages = strtoull(at, &end, 10);
  return pages * page_bytes();
}

bool add_limit(Line& line, int resource, const char* name, std::uint64_t used, std::uint64_t wanted) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      used + wanted <= limit.rlim_cur)
    return false;
  line.add("refused by ");
  line.add(name);
  line.add("=");
  line.add_bytes(limit.rlim_cur);
  line.add(", of which ");
  line.add_bytes(used);
  line.add(" is in use");
  return true;
}

bool add_overcommit(Line& line, std::uint64_t wanted) {
  if (SmallFile<16>("/proc/sys/vm/overcommit_memory").number() == 2) {
    const auto& memory = *new (scratch) SmallFile<sizeof scratch>("/proc/meminfo");
    const auto limit = memory.number_after("CommitLimit:"), committed = memory.number_after("Committed_AS:");
    if (limit && committed && *committed * 1024 + wanted > *limit * 1024) {
      line.add("refused by vm.overcommit_memory=2: ");
      line.add_bytes(*committed * 1024);
      line.add(" of ");
      line.add_bytes(*limit * 1024);
      line.add(" is committed");
      return true;
    }
  }
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) return false;
  const std::uint64_t all = (std::uint64_t{machine.totalram} + machine.totalswap) * machine.mem_unit;
  if (wanted <= all) return false;
  line.add("refused by the system, which has ");
  line.add_bytes(all);
  line.add(" of memory and swap");
  return true;
}

std::uint64_t count_mappings() {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file == -1) return 0;
  std::uint64_t lines = 0;
  for (ssize_t bytes; (bytes = read(file, scratch, sizeof scratch)) > 0;)
    lines += static_cast<std::uint64_t>(std::count(scratch, scratch + bytes, '\n'));
  close(file);
  return lines;
}

bool add_mappings(Line& line) {
  const auto most = SmallFile<32>("/proc/sys/vm/max_map_count").number();
  const std::uint64_t mappings = count_mappings();
  if (!most || mappings + 2 < *most) return false;
  line.add("refused by vm.max_map_count=");
  line.add_number(*most);
  return true;
}

// It ends processes rather than refuse anything, but is what there is to have.
void add_control_group(Line& line) {
  const auto& groups = *new (scratch) SmallFile<512>("/proc/self/cgroup");
  auto& path = *new (scratch + sizeof groups) FilePath("/sys/fs/cgroup");
  static_assert(sizeof groups + sizeof path <= sizeof scratch && sizeof groups % alignof(FilePath) == 0);
  path.add_rest_of_line(groups.text(), "0::");
  path.add("/memory.max");
  auto most = SmallFile<32>(path.text()).number();
  if (!most) most = SmallFile<32>("/sys/fs/cgroup/memory.max").number();
  if (!most) return;
  line.add("; the limit of its control group is ");
  line.add_bytes(*most);
}

bool may_speak() {
  return phase() == Phase::running && !system_calls_are_filtered() && options().report != "none" &&
         (options().report_requested || gpu_state_made.load(std::memory_order_relaxed));
}

}  // namespace

[[gnu::cold]] void note_out_of_memory(std::size_t bytes) {
  static constinit std::atomic<bool> said{false};
  if (!bytes || bytes > PTRDIFF_MAX || !may_speak() || said.exchange(true)) return;
  const int error = errno;
  static constinit Line line;
  line.add("cistern: malloc of ");
  line.add_bytes(bytes);
  line.add(": out of memory; ");
  if (!add_limit(line, RLIMIT_AS, "RLIMIT_AS (ulimit -v)", own_memory(1), bytes) &&
      !add_limit(line, RLIMIT_DATA, "RLIMIT_DATA (ulimit -d)", own_memory(6), bytes) && !add_overcommit(line, bytes) &&
      !add_mappings(line))
    line.add("refused by the system");
  add_control_group(line);
  line.add(" (printed once)\n");
  if (const int descriptor = standard_error(); descriptor != -1) write_whole(descriptor, line.text());
  errno = error;
}

}  // namespace cistern::host
