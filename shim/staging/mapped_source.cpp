// See mapped_source.hpp.
#include "shim/staging/mapped_source.hpp"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>

#include "pool/base/page_size.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/staging/source_kind.hpp"

namespace cistern {
namespace {

// Numbers that no other file gets while a copy runs, even where another thread of the program closes all that it does
// not know: new files get the lowest free ones.
constexpr unsigned kNumbersFrom = 512;
// Where the system cannot be asked for one mapping, all are read: some milliseconds in a large process.
constexpr std::size_t kBytesToReadAll = std::size_t{64} << 20;

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Pairs of files that copies have open: number + 1, 0 for none.
struct OpenPair {
  std::atomic<bool> taken;
  std::atomic<std::uintptr_t> file, pages;
};
constinit OpenPair open_pairs[16]{};

int take_place() {
  for (int i = 0; i < static_cast<int>(std::size(open_pairs)); ++i)
    if (!open_pairs[i].taken.exchange(true)) return i;
  return -1;
}

std::optional<Mapping> read_all(std::uintptr_t address, char* text, std::size_t text_bytes) {
  const OpenFile maps("/proc/self/maps");
  if (!maps) return std::nullopt;
  MappingReader reader(static_cast<int>(maps.number()));
  while (auto mapping = reader.next()) {
    if (address >= mapping->end) continue;
    if (address < mapping->first || mapping->path.size() >= text_bytes) return std::nullopt;
    *std::copy(mapping->path.begin(), mapping->path.end(), text) = 0;
    mapping->path = {text, mapping->path.size()};
    return mapping;
  }
  return std::nullopt;
}

// Here the path, the device and the number of a file mean one content. On an overlay a file keeps its number when it is
// copied up and changed, and a mapping from before still shows the old content.
bool is_plain_file_system(const OpenFile& file) {
  constexpr std::uint32_t kBtrfs = 0x9123683E, kExt = 0xEF53, kF2fs = 0xF2F52010, kXfs = 0x58465342;
  struct statfs is {};
  if (system_call(SYS_fstatfs, file.number(), word(&is)) != 0) return false;
  const auto type = static_cast<std::uint32_t>(is.f_type);
  return type == kBtrfs || type == kExt || type == kF2fs || type == kXfs;
}

// The regular file of that device and number, or one that is not open. A path may lead to another file by now, even one
// whose opening does something: first it is only looked at.
OpenFile open_if_same(const char* path, std::uint64_t device, std::uint64_t inode) {
  const OpenFile there(path, O_PATH | O_NOFOLLOW);
  struct stat is {};
  if (!there || system_call(SYS_fstat, there.number(), word(&is)) != 0) return {};
  if (!S_ISREG(is.st_mode) || is.st_ino != inode || device_number(major(is.st_dev), minor(is.st_dev)) != device)
    return {};
  if (!is_plain_file_system(there)) return {};
  char name[32] = "/proc/self/fd/";
  *std::to_chars(name + strlen(name), name + sizeof name - 1, there.number()).ptr = 0;
  const OpenFile file(name, O_RDONLY | O_NONBLOCK);  // another process may have a lease
  return file ? file.with_number_from(kNumbersFrom) : OpenFile();
}

}  // namespace

std::optional<Mapping> mapping_around(std::uintptr_t address, char* text, std::size_t text_bytes, bool may_read_all) {
  const auto asked = asked_mapping(address, text, text_bytes);
  return asked || !may_read_all ? asked : read_all(address, text, text_bytes);
}

// In a child that a signal handler forked during the copy they are closed already.
MappedSource::~MappedSource() {
  if (place_ < 0) return;
  if (!open_pairs[place_].file.exchange(0)) file_.forget();
  if (!open_pairs[place_].pages.exchange(0)) pages_.forget();
  file_.close_now();
  pages_.close_now();
  open_pairs[place_].taken = false;
}

bool MappedSource::open(const char* first, std::size_t bytes) {
  if (bytes < kBytesMin || system_calls_are_filtered()) return false;
  char path[4096];
  const auto mapping = mapping_around(word(first), path, sizeof path, bytes >= kBytesToReadAll);
  if (!mapping || !mapping->inode || !mapping->is_readable || word(first) + bytes > mapping->end) return false;
  if (!mapping->path.starts_with('/')) return false;
  place_ = take_place();
  if (place_ < 0) return false;
  file_ = open_if_same(path, mapping->device, mapping->inode);
  if (file_ && !mapping->is_shared) {
    const OpenFile pages("/proc/self/pagemap");
    if (pages) pages_ = pages.with_number_from(kNumbersFrom);
    if (!pages_) file_.close_now();
  }
  open_pairs[place_].file = file_ ? file_.number() + 1 : 0;
  open_pairs[place_].pages = pages_ ? pages_.number() + 1 : 0;
  first_ = mapping->first;
  offset_ = mapping->offset;
  return static_cast<bool>(file_);
}

// A page of a private file is the program's own from its first write: in memory, and not the file's; or swapped out.
bool MappedSource::has_own_pages(std::uintptr_t first, std::size_t bytes) const {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kSwapped = std::uint64_t{1} << 62,
                          kOfFile = std::uint64_t{1} << 61;
  std::uint64_t entries[128];
  const std::uintptr_t last = (first + bytes - 1) / page_bytes();
  for (std::uintptr_t page = first / page_bytes(); page <= last; page += std::size(entries)) {
    const std::size_t wanted = std::min<std::size_t>(std::size(entries), last - page + 1) * sizeof entries[0];
    const long got = system_call(SYS_pread64, pages_.number(), word(entries), wanted, page * sizeof entries[0]);
    if (got != static_cast<long>(wanted)) return true;
    for (std::size_t i = 0; i < wanted / sizeof entries[0]; ++i)
      if (entries[i] & kSwapped || (entries[i] & (kPresent | kOfFile)) == kPresent) return true;
  }
  return false;
}

bool MappedSource::read(char* to, const char* from, std::size_t bytes) const {
  if (pages_ && has_own_pages(word(from), bytes)) return false;
  for (std::size_t at = 0; at < bytes;) {
    const long got = system_call(SYS_pread64, file_.number(), word(to + at), bytes - at, offset_of(from + at));
    if (got == -EINTR) continue;
    if (got <= 0) return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}

// The file answers this to all users, and the mapping only to some. Before Linux 4.14 nothing is known.
bool MappedSource::is_cached(const char* address) const {
  char byte = 0;
  const iovec to{&byte, 1};
  const long got = system_call(SYS_preadv2, file_.number(), word(&to), 1, offset_of(address), 0, RWF_NOWAIT);
  return got != -EAGAIN;
}

void mapped_sources_after_fork_in_child() {
  for (OpenPair& pair : open_pairs) {
    for (std::atomic<std::uintptr_t>* number : {&pair.file, &pair.pages})
      if (const std::uintptr_t open = number->exchange(0)) system_call(SYS_close, open - 1);
    pair.taken = false;
  }
}

}  // namespace cistern
