// Shared buffers' files in /dev/shm, which processes are attached to by locks: see shared_files.cpp.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cistern/cistern.h"

namespace cistern::library {

// The path of a file in /dev/shm, and the user that must own it.
struct SharedName {
  char path[256] = {};
  uid_t user = 0;
};
uid_t own_user();
// False: not one that is allowed.
bool make_shared_name(SharedName& name, const char* given, uid_t user);

// The start of the file's first page. It is written once, before the file has a name.
struct SharedHeader {
  static constexpr std::uint64_t kMagic = 0x3172656874676f74;  // "togther1"; another layout: another number
  std::uint64_t magic = kMagic;
  std::int64_t kind = 0;
  std::uint64_t bytes = 0, element_bytes = 0, type = 0;
  std::uint64_t device_offset = 0;  // offset of the buffer in the memory of the handle
  char device_handle[64] = {};      // the driver's
};

// A process is attached by one of these, as long as it lives. In a forked child all are as if they had left.
class SharedFile {
 public:
  enum class Access { to_write, to_read };

  SharedFile() = default;
  SharedFile(SharedFile&& other) noexcept : id_(std::exchange(other.id_, 0)), file_(other.file_) {}
  SharedFile& operator=(SharedFile&& other) noexcept {
    leave();
    id_ = std::exchange(other.id_, 0);
    file_ = other.file_;
    return *this;
  }
  ~SharedFile() { leave(); }

  bool is_here() const;
  bool is_inherited() const;

  // A new file, reserved whole, to which this process is attached. Without a name no other process sees it.
  cistern_status make(const SharedHeader& header, unsigned mode);
  // CISTERN_EXISTS: the name is taken by one that is in use. Leftovers are removed.
  cistern_status publish(const SharedName& name);
  // CISTERN_NOT_FOUND: there is none in use. `*is_whole`: its bytes are there.
  cistern_status attach(const SharedName& name, Access access, SharedHeader* header, bool* is_whole);

  // Maps the part behind the first page.
  cistern_status map(std::size_t bytes, Access access, void** memory) const;
  // False: other processes are attached. True: no process can attach any more.
  bool is_last();
  // Not attached any more; the last one removes the file. True: it did.
  bool leave();

  // Removes a file to which no process is attached. True: it did.
  static bool remove_leftover(const SharedName& name);

  // For device memory: the owner takes a lock that says so. Without that lock the owner is gone.
  bool say_owner(void* memory);
  bool owner_lives() const;
  // Where this very process is the owner.
  void* owned_here() const;

 private:
  enum class Found { in_use, leftover, gone, blocked };
  cistern_status open_existing(const SharedName& name, Access access, SharedHeader* header, bool* is_whole);
  Found enter(bool may_write);

  std::uint64_t id_ = 0;  // in the list of shared_files.cpp
  int file_ = -1;
};

// CISTERN_EXISTS: no. A leftover of that name is removed.
cistern_status shared_name_is_free(const SharedName& name);
// Removes leftovers of this user; how many.
cistern_status clean_shared_files(std::size_t* removed);

void shared_files_before_fork();
void shared_files_after_fork_in_parent();
void shared_files_after_fork_in_child();

}  // namespace cistern::library
