// See shared.hpp, and cistern/shared.h. A shared buffer is a file that this process is attached to (shared_files.cpp),
// and memory: what the file holds, mapped, or a device's (KindSharing).
//
//   create -> is the name free? -> the file, and memory, before it has a name -> the name, last
//   attach -> the file, locked -> does it have what is wanted? -> its memory
//   detach -> the memory -> the file, which goes with the last one
#include "shim/library/shared.hpp"

#include <errno.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>

#include "shim/library/answers.hpp"
#include "shim/library/handles.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/shared_files.hpp"
#include "shim/process/lookup.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

using Access = SharedFile::Access;

// A buffer that was not handed out is detached when its object ends.
struct Shared {
  static constexpr char kWhat[] = "shared buffer";
  SharedFile file;
  SharedHeader header;
  Access access = Access::to_write;
  void* mapped = nullptr;  // host
  SharedMemory memory;     // device
  bool is_owner = false;   // of device memory

  Shared() = default;
  Shared(Shared&&) = delete;
  ~Shared() { begin_anew(); }

  // Null: the file has it.
  const KindSharing* sharing() const { return memory_of(static_cast<cistern_kind>(header.kind))->sharing; }
  void take_from(Shared& other) {
    file = std::move(other.file);
    header = other.header;
    access = other.access;
    mapped = std::exchange(other.mapped, nullptr);
    memory = std::exchange(other.memory, {});
    is_owner = std::exchange(other.is_owner, false);
  }
  cistern_status detach();
  void begin_anew() { detach(); }
};

// The owner of device memory stays attached until no process can find it any more, because a free may wait for the
// device, and others wait for the file's lock. A process that opened it stays attached until it is closed. A forked
// child inherits neither.
cistern_status Shared::detach() {
  const SharedMemory gone = std::exchange(memory, {});
  const bool is_inherited = file.is_inherited(), owned = std::exchange(is_owner, false);
  cistern_status status = CISTERN_OK;
  if (gone.opened && !is_inherited) status = sharing()->close(gone);
  const int error_before = errno;
  if (mapped) munmap(std::exchange(mapped, nullptr), header.bytes);
  errno = error_before;
  file.leave();
  if (owned && !is_inherited) status = sharing()->free(gone);
  return status;
}

constinit Handles<Shared, cistern_shared, 4> all_shared;

cistern_status hand_out(Shared& made, cistern_shared** handle) {
  *handle = all_shared.make([&](Shared& record) { record.take_from(made); });
  return *handle ? CISTERN_OK : CISTERN_NO_MEMORY;
}

// The beginning of all calls. The first call of a process removes leftover files.
bool read_settings(cistern_shared_settings& own, const cistern_shared_settings* given, cistern_shared** handle) {
  static constinit std::atomic<bool> cleaned{false};
  native = 0;
  if (handle) *handle = nullptr;
  if (!handle || !read_sized(own, given, offsetof(cistern_shared_settings, mode))) return false;
  const KindMemory* const memory = memory_of(own.kind);
  if (!memory || (memory->kind != CISTERN_HOST && !memory->sharing) || own.device < 0) return false;
  if (!cleaned.exchange(true)) {
    std::size_t removed = 0;
    clean_shared_files(&removed);
    native = 0;
  }
  return true;
}

cistern_status fill(Shared& made, const cistern_shared_settings& settings, unsigned mode) {
  made.header.kind = settings.kind;
  made.header.bytes = settings.bytes;
  made.header.element_bytes = settings.element_bytes;
  made.header.type = settings.type;
  const KindSharing* const sharing = made.sharing();
  if (sharing) {
    const cistern_status status = sharing->make(settings.device, made.header, &made.memory);
    if (status != CISTERN_OK) return status;
    made.is_owner = true;
  }
  if (const cistern_status status = made.file.make(made.header, mode); status != CISTERN_OK) return status;
  if (!sharing) return made.file.map(made.header.bytes, made.access, &made.mapped);
  return made.file.say_owner(reinterpret_cast<void*>(made.memory.address)) ? CISTERN_OK : refused(ENOLCK);
}

bool fits(const SharedHeader& header, const cistern_shared_settings& wanted) {
  return header.kind == wanted.kind && header.bytes && (!wanted.bytes || wanted.bytes == header.bytes) &&
         (!wanted.element_bytes || wanted.element_bytes == header.element_bytes) &&
         (!wanted.type || wanted.type == header.type);
}

// In the process that has it, it is the same memory: a driver opens no handle of its own process.
cistern_status find_device_memory(Shared& found, int device) {
  if (void* const own = found.file.owned_here()) {
    found.memory.address = reinterpret_cast<std::uintptr_t>(own);
    return CISTERN_OK;
  }
  if (!found.file.owner_lives()) return refused(ENOENT, CISTERN_NOT_FOUND);
  const cistern_status status = found.sharing()->open(device, found.header, &found.memory);
  if (status == CISTERN_OK) return status;
  found.memory = {};
  return found.file.owner_lives() ? status : refused(ENOENT, CISTERN_NOT_FOUND);
}

}  // namespace

cistern_status shared_create(const cistern_shared_settings* settings, cistern_shared** handle) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  constexpr unsigned kOwnersMode = 0600, kModes = 0777;
  cistern_shared_settings own{};
  SharedName name;
  if (!read_settings(own, settings, handle) || !make_shared_name(name, own.name, own_user())) return CISTERN_INVALID;
  const unsigned mode = own.mode ? own.mode : kOwnersMode;
  if ((mode & kOwnersMode) != kOwnersMode || (mode & ~kModes) || own.flags || !own.bytes) return CISTERN_INVALID;
  if (own.element_bytes && own.bytes % own.element_bytes) return CISTERN_INVALID;
  Shared made;
  cistern_status status = shared_name_is_free(name);
  if (status == CISTERN_OK) status = fill(made, own, mode);
  if (status == CISTERN_OK) status = made.file.publish(name);
  return status == CISTERN_OK ? hand_out(made, handle) : status;
}

cistern_status shared_attach(const cistern_shared_settings* settings, cistern_shared** handle) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  constexpr unsigned kFlags = CISTERN_READ_ONLY | CISTERN_OF_OTHER_USER;
  cistern_shared_settings own{};
  SharedName name;
  if (!read_settings(own, settings, handle)) return CISTERN_INVALID;
  const uid_t user = own.flags & CISTERN_OF_OTHER_USER ? static_cast<uid_t>(own.user) : own_user();
  if ((own.flags & ~kFlags) || !make_shared_name(name, own.name, user)) return CISTERN_INVALID;
  if ((own.flags & CISTERN_READ_ONLY) && own.kind != CISTERN_HOST) return CISTERN_INVALID;
  Shared found;
  bool is_whole = false;
  found.access = own.flags & CISTERN_READ_ONLY ? Access::to_read : Access::to_write;
  const cistern_status status = found.file.attach(name, found.access, &found.header, &is_whole);
  if (status != CISTERN_OK) return status;
  if (!is_whole || !fits(found.header, own)) return CISTERN_MISMATCH;
  const cistern_status there = found.sharing() ? find_device_memory(found, own.device)
                                               : found.file.map(found.header.bytes, found.access, &found.mapped);
  return there == CISTERN_OK ? hand_out(found, handle) : there;
}

cistern_status shared_detach(cistern_shared* handle) {
  native = 0;
  Handles<Shared, cistern_shared, 4>::Use shared(all_shared, "cistern_shared_detach", handle);
  if (!shared) return CISTERN_INVALID;
  if (shared->is_owner && shared->file.is_here() && !shared->file.is_last()) return CISTERN_BUSY;
  const cistern_status status = shared->detach();
  shared.end();
  return status;
}

cistern_status shared_get(cistern_shared* handle, cistern_shared_view* view) {
  native = 0;
  const bool has_room = clear_sized(view);
  const Handles<Shared, cistern_shared, 4>::Use shared(all_shared, "cistern_shared_get", handle);
  if (!shared || !has_room) return CISTERN_INVALID;
  cistern_shared_view own{};
  own.address = shared->mapped ? shared->mapped : reinterpret_cast<void*>(shared->memory.address);
  own.bytes = shared->header.bytes;
  own.element_bytes = shared->header.element_bytes;
  own.type = shared->header.type;
  own.kind = static_cast<cistern_kind>(shared->header.kind);
  own.writable = shared->access == Access::to_write;
  own.owner = shared->is_owner && shared->file.is_here();
  own.owner_lives = own.owner || (shared->sharing() && shared->file.owner_lives());
  write_sized(view, own);
  return CISTERN_OK;
}

cistern_status shared_clean(size_t* removed) {
  native = 0;
  std::size_t count = 0;
  const cistern_status status = clean_shared_files(&count);
  if (removed) *removed = count;
  return status;
}

void shared_before_fork() {
  all_shared.before_fork();
  shared_files_before_fork();
}
void shared_after_fork_in_parent() {
  shared_files_after_fork_in_parent();
  all_shared.after_fork_in_parent();
}
void shared_after_fork_in_child() {
  shared_files_after_fork_in_child();
  all_shared.after_fork_in_child();
}

}  // namespace cistern::library
