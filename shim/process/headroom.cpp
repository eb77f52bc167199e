// See headroom.hpp.
#include "shim/process/headroom.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "pool/base/page_size.hpp"
#include "pool/base/process_limit.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern {
namespace {

// No process fills memory faster.
constexpr std::uint64_t kBytesPerNanosecondMost = 16;
constexpr std::uint64_t kLookAgainMin = 2'000'000, kLookAgainMax = 250'000'000;

std::uint64_t left_of(std::uint64_t limit, std::uint64_t used) { return limit > used ? limit - used : 0; }

// Programs that commit no more than there is are refused by what all of them have asked for.
std::uint64_t machine_bytes() {
  const SmallFile<4096> memory("/proc/meminfo");
  std::uint64_t left = kNoLimit;
  if (const auto available = memory.number_after("MemAvailable:")) left = *available << 10;
  if (SmallFile<16>("/proc/sys/vm/overcommit_memory").number() != 2) return left;
  const auto limit = memory.number_after("CommitLimit:"), committed = memory.number_after("Committed_AS:");
  return limit && committed ? std::min(left, left_of(*limit, *committed) << 10) : left;
}

// A number of /proc/self/statm: the whole address space is its first number, data its sixth.
std::uint64_t addressable_bytes() {
  const std::uint64_t of_all = limit_of_process(RLIMIT_AS), of_data = limit_of_process(RLIMIT_DATA);
  if (of_all == kNoLimit && of_data == kNoLimit) return kNoLimit;
  const SmallFile<128> sizes("/proc/self/statm");
  std::uint64_t pages[6] = {};
  const char* at = sizes.text();
  for (std::uint64_t& count : pages) {
    const char* const end = std::from_chars(at, at + strlen(at), count).ptr;
    if (end == at) return 0;
    at = end + (*end == ' ');
  }
  const auto page = std::uint64_t{page_bytes()};
  return std::min(left_of(of_all, pages[0] * page), left_of(of_data, pages[5] * page));
}

struct GroupFiles {
  const char *root, *line, *most, *used;
};
constexpr GroupFiles kGroupFiles[] = {
    {"/sys/fs/cgroup", "0::", "/memory.max", "/memory.current"},
    {"/sys/fs/cgroup/memory", ":memory:", "/memory.limit_in_bytes", "/memory.usage_in_bytes"}};

std::string_view rest_of_line(const char* text, const char* marker) {
  const char* const at = strstr(text, marker);
  if (!at) return {};
  const char* const rest = at + strlen(marker);
  return {rest, strcspn(rest, "\n")};
}

std::uint64_t left_in_group(const char* root, const GroupFiles& files, std::string_view group) {
  const auto file = [&](const char* name) {
    FilePath path(root);
    path.add(files.root);
    path.add(group);
    path.add(name);
    return path;
  };
  const auto limit = SmallFile<32>(file(files.most).text()).number();
  const auto taken = limit ? SmallFile<32>(file(files.used).text()).number() : std::nullopt;
  if (!limit || !taken) return kNoLimit;
  // The kernel frees cached pages of files when memory is needed.
  const SmallFile<8192> parts(file("/memory.stat").text());
  const std::uint64_t cached =
      parts.number_after("\ninactive_file").value_or(0) + parts.number_after("\nactive_file").value_or(0);
  return left_of(*limit, left_of(*taken, cached));
}

}  // namespace

std::uint64_t left_in_groups(const char* root) {
  FilePath list(root);
  list.add("/proc/self/cgroup");
  const SmallFile<4096> groups(list.text());
  std::uint64_t room = kNoLimit;
  for (const GroupFiles& files : kGroupFiles) {
    // A group has the limits of those above it; the topmost is all that a container sees of its own.
    for (std::string_view group = rest_of_line(groups.text(), files.line);; group = group.substr(0, group.rfind('/'))) {
      room = std::min(room, left_in_group(root, files, group));
      if (group.empty()) break;
    }
  }
  return room;
}

std::uint64_t available_bytes() { return std::min(machine_bytes(), left_in_groups("")); }

std::uint64_t Headroom::rest(std::uint64_t known, std::uint64_t taken_then, std::uint64_t taken_now) {
  if (known == kNoLimit) return known;
  return taken_now > taken_then ? left_of(known, taken_now - taken_then) : known;
}

std::uint64_t Headroom::bytes(const Question& asked) {
  const auto [taken_bytes, now_ns, at_once] = asked;
  const bool may_look = !system_calls_are_filtered();
  if (!may_look && !looked_.load(std::memory_order_relaxed)) return kUnknown;
  std::uint64_t addressable = 0, available = 0;
  const bool due = may_look && now_ns >= look_again_ns_.load(std::memory_order_relaxed);
  const unsigned limits = limits_set_.load(std::memory_order_relaxed);
  addressable = addressable_.load(std::memory_order_relaxed);
  const bool moves =
      addressable != kNoLimit && (at_once || now_ns != limits_looked_ns_.load(std::memory_order_relaxed));
  if (due || (may_look && (moves || limits != limits_seen_.load(std::memory_order_relaxed)))) {
    limits_seen_.store(limits, std::memory_order_relaxed);
    limits_looked_ns_.store(now_ns, std::memory_order_relaxed);
    addressable = addressable_bytes();
    addressable_.store(addressable, std::memory_order_relaxed);
    taken_at_limits_.store(taken_bytes, std::memory_order_relaxed);
  } else {
    addressable = rest(addressable, taken_at_limits_.load(std::memory_order_relaxed), taken_bytes);
  }
  if (due) {
    available = available_bytes();
    available_.store(available, std::memory_order_relaxed);
    taken_at_look_.store(taken_bytes, std::memory_order_relaxed);
    look_again_ns_.store(now_ns + std::clamp(available / kBytesPerNanosecondMost, kLookAgainMin, kLookAgainMax),
                         std::memory_order_relaxed);
    looked_.store(true, std::memory_order_relaxed);
  } else {
    available =
        rest(available_.load(std::memory_order_relaxed), taken_at_look_.load(std::memory_order_relaxed), taken_bytes);
  }
  return std::min(addressable, available);
}

}  // namespace cistern
