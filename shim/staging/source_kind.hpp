// Tells kinds of host memory apart that a copy reads or writes: anonymous memory, mapped files, shared memory. The
// driver copies each at another speed, so copies of each kind are measured apart.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/lock.hpp"
#include "shim/process/memory_map.hpp"

namespace cistern {

enum class SourceKind : std::uint8_t {
  anonymous,
  file,
  network_file,
  shared_memory,
  cold_file,
  cold_network_file,
  new_memory  // anonymous, and a copy to the host is the first to touch it
};
constexpr int kSourceKinds = 7;

const char* name_of(SourceKind kind);  // in reports
// Some of it is not in the page cache: a copy waits for the disk or the network.
constexpr bool is_cold(SourceKind kind) {
  return kind == SourceKind::cold_file || kind == SourceKind::cold_network_file;
}
constexpr bool is_file(SourceKind kind) {
  return kind == SourceKind::file || kind == SourceKind::network_file || is_cold(kind);
}
// The cold kind of files; other memory stays what it is.
constexpr SourceKind cold(SourceKind kind) {
  if (kind == SourceKind::file) return SourceKind::cold_file;
  return kind == SourceKind::network_file ? SourceKind::cold_network_file : kind;
}

// The memory of a copy, as its first page is.
struct HostSource {
  SourceKind kind = SourceKind::anonymous;
  const char* mapping_end = nullptr;  // of a file
};

// --- The steps of a look

// The part of a mapping that its kind depends on. Inode 0: anonymous memory.
struct MappedFile {
  std::uintptr_t first, end;
  std::uint64_t device, inode;
  bool is_shared;
  bool is_of_kernel;  // no path leads to the file: memfd_create, System V, MAP_SHARED | MAP_ANONYMOUS
};
MappedFile mapped_file(const Mapping& mapping);

// By ioctl, Linux 6.11; by the text of /proc/self/maps. Nothing: no mapping is there, or it cannot be read.
std::optional<MappedFile> query_mapping(std::uintptr_t address);
std::optional<MappedFile> read_mapping(std::uintptr_t address);

enum class FileSystem : std::uint8_t { unknown, local, network, memory, huge_pages };
FileSystem file_system_named(std::string_view type);
// From a line of /proc/self/mountinfo; nothing: the line is of another device.
std::optional<FileSystem> file_system_in(std::string_view mount, std::uint64_t device);

// The mapping with that address, where anonymous pages of a private file count as anonymous memory of `bytes`.
MappedFile look_at_mapping(std::uintptr_t address, std::size_t bytes);

SourceKind kind_of(const MappedFile& file, FileSystem file_system);

// Looks, and remembers for a while what it saw. An answer may be out of date: decisions by it may cost time, and
// nothing else. Thread-safe.
class SourceKinds {
 public:
  static constexpr std::uint64_t kValidNs = 100'000'000;

  // Anonymous where nothing can be known, or under a filter of system calls. Never cold or new.
  HostSource of(const void* first, std::size_t bytes, std::uint64_t now_ns);

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  struct Seen {
    MappedFile file;
    FileSystem file_system;
    std::uint64_t seen_ns;
  };
  std::optional<FileSystem> file_system_seen(const MappedFile& of);

  Lock lock_;
  Seen seen_[16]{};
  unsigned next_ = 0;  // overwritten next
};

}  // namespace cistern
