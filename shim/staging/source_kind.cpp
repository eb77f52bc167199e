// See source_kind.hpp.
#include "shim/staging/source_kind.hpp"

#include <errno.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "pool/base/page_size.hpp"
#include "pool/heap/pages.hpp"
#include "pool/limits.hpp"
#include "shim/process/open_file.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern {
namespace {

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// --- The page

// False also where the page is in no page table. A page of a private file is anonymous from the program's first write.
bool is_anonymous_page(std::uintptr_t address) {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kOfFile = std::uint64_t{1} << 61;
  const OpenFile pages("/proc/self/pagemap");
  std::uint64_t entry = 0;
  const std::uintptr_t at = address / page_bytes() * sizeof entry;
  return pages && system_call(SYS_pread64, pages.number(), word(&entry), sizeof entry, at) == sizeof entry &&
         (entry & (kPresent | kOfFile)) == kPresent;
}

// --- The mapping

// A file that the kernel makes without a path has a name like that of a deleted file in the root. Empty for others.
std::string_view name_of_kernel(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  return path.ends_with(kDeleted) ? path.substr(0, path.size() - kDeleted.size()) : std::string_view();
}

// Huge pages of a mapping without a file have one inside the kernel.
MappedFile described(MappedFile file, std::string_view path) {
  const std::string_view name = name_of_kernel(path);
  const bool is_huge = name == "/anon_hugepage";
  if (is_huge && !file.is_shared) file.inode = 0;
  file.is_of_kernel =
      name == "/dev/zero" || name.starts_with("/memfd:") || name.starts_with("/SYSV") || (is_huge && file.is_shared);
  if (file.is_of_kernel && !file.inode) file.inode = 1;  // a system's first segment of System V has number 0
  return file;
}

}  // namespace

MappedFile mapped_file(const Mapping& mapping) {
  return described({mapping.first, mapping.end, mapping.device, mapping.inode, mapping.is_shared, false}, mapping.path);
}

std::optional<MappedFile> query_mapping(std::uintptr_t address) {
  // struct procmap_query of <linux/fs.h>, which may be older than the system.
  struct Query {
    std::uint64_t size, flags, address, first, end, rights, page_bytes, offset, inode;
    std::uint32_t device_major, device_minor, name_bytes, build_id_bytes;
    std::uint64_t name, build_id;
  };
  constexpr auto kQuery = _IOWR('f', 17, Query);
  constexpr std::uint64_t kShared = 8;
  char name[320];  // longer ones are no names of the kernel's
  const OpenFile maps("/proc/self/maps");
  if (!maps) return std::nullopt;
  Query query{};
  query.size = sizeof query;
  query.address = address;
  query.name = word(name);
  query.name_bytes = sizeof name;
  long answer = system_call(SYS_ioctl, maps.number(), kQuery, word(&query));
  if (answer == -ENAMETOOLONG) {
    query.name = query.name_bytes = 0;
    answer = system_call(SYS_ioctl, maps.number(), kQuery, word(&query));
  }
  if (answer != 0) return std::nullopt;
  const std::string_view path(name, query.name_bytes ? query.name_bytes - 1 : 0);
  const std::uint64_t device = device_number(query.device_major, query.device_minor);
  return described({query.first, query.end, device, query.inode, (query.rights & kShared) != 0, false}, path);
}

std::optional<MappedFile> read_mapping(std::uintptr_t address) {
  const OpenFile maps("/proc/self/maps");
  if (!maps) return std::nullopt;
  MappingReader reader(static_cast<int>(maps.number()));
  while (const auto mapping = reader.next())
    if (address < mapping->end) return address < mapping->first ? std::nullopt : std::optional(mapped_file(*mapping));
  return std::nullopt;
}

// --- The file system

FileSystem file_system_named(std::string_view type) {
  constexpr std::string_view kNetwork[] = {"nfs",  "nfs4", "cifs", "smb3", "ceph",  "lustre",
                                           "fuse", "9p",   "gpfs", "afs",  "beegfs"};
  if (type.starts_with("fuse.") || std::ranges::find(kNetwork, type) != std::end(kNetwork)) return FileSystem::network;
  if (type == "tmpfs") return FileSystem::memory;
  return type == "hugetlbfs" ? FileSystem::huge_pages : FileSystem::local;
}

namespace {

std::string_view take_field(std::string_view& text) {
  const std::size_t at = std::min(text.find(' '), text.size());
  const std::string_view field = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return field;
}

// "98:1"
bool is_device(std::string_view text, std::uint64_t device) {
  std::uint64_t major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return false;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  return second.ec == std::errc{} && second.ptr == end && device_number(major, minor) == device;
}

// All mount points of a device have one file system.
FileSystem file_system_of(const MappedFile& file) {
  if (!file.inode || file.is_of_kernel) return FileSystem::unknown;
  const OpenFile mounts("/proc/self/mountinfo");
  if (!mounts) return FileSystem::unknown;
  LineReader lines(static_cast<int>(mounts.number()));
  while (const auto line = lines.next())
    if (const auto found = file_system_in(*line, file.device)) return *found;
  return FileSystem::unknown;
}

}  // namespace

// "36 35 98:1 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue": no field before the type is a mere
// dash.
std::optional<FileSystem> file_system_in(std::string_view mount, std::uint64_t device) {
  take_field(mount);
  take_field(mount);
  if (!is_device(take_field(mount), device)) return std::nullopt;
  constexpr std::string_view kBeforeType = " - ";
  const std::size_t at = mount.find(kBeforeType);
  if (at == mount.npos) return FileSystem::unknown;
  mount.remove_prefix(at + kBeforeType.size());
  return file_system_named(take_field(mount));
}

// --- All together

// A file of a mount point that this process does not see has a path, and counts as a local one.
SourceKind kind_of(const MappedFile& file, FileSystem file_system) {
  if (!file.inode) return SourceKind::anonymous;
  if (file.is_of_kernel || file_system == FileSystem::memory) return SourceKind::shared_memory;
  if (file_system == FileSystem::huge_pages) return file.is_shared ? SourceKind::shared_memory : SourceKind::anonymous;
  return file_system == FileSystem::network ? SourceKind::network_file : SourceKind::file;
}

// Nothing else can say that a page of a private file is the program's own by now. The text of all mappings may be long:
// it is not read for memory that the page tables call anonymous.
MappedFile look_at_mapping(std::uintptr_t address, std::size_t bytes) {
  const MappedFile anonymous{address, address + bytes, 0, 0, false, false};
  if (system_calls_are_filtered()) return anonymous;
  if (const auto asked = query_mapping(address)) {
    const bool may_differ = asked->inode && !asked->is_shared;
    return may_differ && is_anonymous_page(address) ? anonymous : *asked;
  }
  if (is_anonymous_page(address)) return anonymous;
  return read_mapping(address).value_or(anonymous);
}

// Blocks of the host pool need no look.
HostSource SourceKinds::of(const void* first, std::size_t bytes, std::uint64_t now_ns) {
  if (host_pool::is_in_window(first)) return {};
  const auto source = [](const MappedFile& file, FileSystem file_system) {
    return HostSource{kind_of(file, file_system), reinterpret_cast<const char*>(file.end)};
  };
  const std::uintptr_t address = word(first);
  {
    Locked hold(lock_);
    for (const Seen& seen : seen_)
      if (address >= seen.file.first && address < seen.file.end && elapsed_ns(seen.seen_ns, now_ns) < kValidNs)
        return source(seen.file, seen.file_system);
  }
  const MappedFile file = look_at_mapping(address, bytes);
  const std::optional<FileSystem> known = file_system_seen(file);
  const FileSystem file_system = known ? *known : file_system_of(file);
  Locked hold(lock_);
  seen_[next_] = {file, file_system, now_ns};
  next_ = (next_ + 1) % std::size(seen_);
  return source(file, file_system);
}

// However long ago: a device hardly ever gets another file system.
std::optional<FileSystem> SourceKinds::file_system_seen(const MappedFile& of) {
  Locked hold(lock_);
  for (const Seen& seen : seen_)
    if (seen.file.inode && seen.file.device == of.device) return seen.file_system;
  return std::nullopt;
}

const char* name_of(SourceKind kind) {
  constexpr const char* kNames[kSourceKinds] = {
      "memory", "file", "network-file", "shared-memory", "cold-file", "cold-network-file", "new-memory"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace cistern
