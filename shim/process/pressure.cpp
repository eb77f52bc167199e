// See pressure.hpp.
#include "shim/process/pressure.hpp"

#include <algorithm>
#include <charconv>

#include "pool/base/process_limit.hpp"
#include "shim/process/open_file.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kMinuteNs = 60'000'000'000;
constexpr std::uint64_t kStallPercent = 10;

// Without the field that `text` begins with.
std::string_view behind_field(std::string_view text) {
  return text.substr(std::min(text.find(' '), text.size() - 1) + 1);
}
std::string_view field(std::string_view text) { return text.substr(0, text.find(' ')); }

long read_some(const OpenFile& file, char* text, std::size_t bytes) {
  return system_call(SYS_read, file.number(), reinterpret_cast<std::uintptr_t>(text), bytes);
}

}  // namespace

constinit MemoryPressure memory_pressure;

// One thread of the process looks.
class MemoryPressure::Look {
 public:
  explicit Look(MemoryPressure& of) : looking_(of.looking_) {
    if (system_calls_are_filtered()) return;
    const int own = this_process();
    int other = looking_.load(std::memory_order_relaxed);
    begun_ = other != own && looking_.compare_exchange_strong(other, own, std::memory_order_acquire);
  }
  ~Look() {
    if (begun_) looking_.store(0, std::memory_order_release);
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
  explicit operator bool() const { return begun_; }

 private:
  std::atomic<int>& looking_;
  bool begun_ = false;
};

// Good until the next one is read; empty where there is no such file.
std::string_view MemoryPressure::read(std::string_view folder, std::string_view name) {
  FilePath path(root_ ? root_ : "");
  path.add(folder);
  path.add(name);
  const OpenFile file(path.text());
  if (!file) return {};
  return {text_, static_cast<std::size_t>(std::max(read_some(file, text_, sizeof text_), 0L))};
}

// The number that the file begins with, or the one behind `name`. kNoLimit: there is none, or "max".
std::uint64_t MemoryPressure::number_in(std::string_view folder, std::string_view file, std::string_view name) {
  const std::string_view text = read(folder, file);
  const std::size_t at = text.find(name);
  if (at == text.npos) return kNoLimit;
  std::uint64_t number = kNoLimit;
  std::from_chars(text.data() + at + name.size(), text.data() + text.size(), number);
  return number;
}

// "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw": which group lies where.
bool MemoryPressure::note_mount(std::string_view line) {
  if (line.find(" - cgroup2 ") == line.npos) return false;
  const std::string_view root = behind_field(behind_field(behind_field(line)));
  if (field(root) != "/") mount_root_.add(field(root));
  mount_point_.add(field(behind_field(root)));
  return true;
}

// A line that is longer than the buffer is cut: what matters stands at its front. A child that is forked meanwhile
// begins again.
bool MemoryPressure::find_mount() {
  mount_root_ = mount_point_ = FilePath("");
  FilePath path(root_ ? root_ : "");
  path.add("/proc/self/mountinfo");
  const OpenFile file(path.text());
  if (!file) return false;
  std::size_t kept = 0;
  for (long bytes; (bytes = read_some(file, text_ + kept, sizeof text_ - kept)) > 0;) {
    std::string_view text(text_, kept + static_cast<std::size_t>(bytes));
    for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
      if (note_mount(text.substr(0, end))) return true;
    if (text.size() == sizeof text_ && note_mount(text)) return true;
    kept = text.size() == sizeof text_ ? 0 : text.size();
    std::copy_n(text.data(), kept, text_);
  }
  return false;
}

// The folder of the process's group; empty: there is none. The process may have moved since the last look. Where the
// mounted group is not above its own, that is all it sees.
FilePath MemoryPressure::group() {
  if (mount_ == Mount::unknown) mount_ = find_mount() ? Mount::found : Mount::none;
  FilePath folder("");
  if (mount_ == Mount::none) return folder;
  std::string_view path = read({}, "/proc/self/cgroup");
  constexpr std::string_view kUnified = "0::";
  while (!path.empty() && !path.starts_with(kUnified))
    path.remove_prefix(std::min(path.find('\n'), path.size() - 1) + 1);
  if (path.empty()) return folder;
  path = path.substr(kUnified.size(), path.find('\n') - kUnified.size());
  folder.add(mount_point_.view());
  const std::string_view root = mount_root_.view();
  if (path.starts_with(root)) path.remove_prefix(root.size());
  if (path.starts_with('/') && path != "/") folder.add(path);
  return folder;
}

bool MemoryPressure::is_full(std::string_view group, bool& has_limit) {
  const std::uint64_t limit = std::min(number_in(group, "/memory.high"), number_in(group, "/memory.max"));
  if (limit == kNoLimit) return false;
  has_limit = true;
  const std::uint64_t used = number_in(group, "/memory.current"), much = limit / 10 * 9;
  if (used == kNoLimit || used < much) return false;
  const std::uint64_t cached = number_in(group, "/memory.stat", "\ninactive_file ");
  return cached == kNoLimit || used - std::min(used, cached) >= much;
}

bool MemoryPressure::is_near_limit(std::uint64_t now_ns) {
  const Look look(*this);
  if (!look || now_ns < rests_until_ns_) return false;
  const FilePath own = group();
  bool has_limit = false, full = false;
  for (std::string_view folder = own.view(); !folder.empty(); folder = folder.substr(0, folder.rfind('/'))) {
    full |= is_full(folder, has_limit);
    if (full || folder.size() <= mount_point_.view().size()) break;
  }
  if (!has_limit) rests_until_ns_ = now_ns + kMinuteNs;
  return full;
}

bool MemoryPressure::is_stalled() {
  const Look look(*this);
  if (!look) return false;
  constexpr std::string_view kSome = "avg10=";  // the first line
  const FilePath own = group();
  std::uint64_t percent = kNoLimit;
  if (!own.view().empty()) percent = number_in(own.view(), "/memory.pressure", kSome);
  if (percent == kNoLimit) percent = number_in({}, "/proc/pressure/memory", kSome);
  return percent != kNoLimit && percent >= kStallPercent;
}

}  // namespace cistern
