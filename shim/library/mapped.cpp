// Files on a device, chunk by chunk (cistern/mapped.h).
//
// A slot is memory for one chunk on the device, and two lanes. A lane is a queue of its own with page-locked memory.
// The pieces of a chunk take the lanes in turn: while one piece is in flight, the other is read from the file.
//
//   acquire -> [a slot: the one unused for longest that can be written back] -> [fill: the file -> pieces -> lanes]
//           -> the program's queue follows the slot's lanes
//   release -> the slot's lanes follow the program's queue; the system reads the next chunk into its own cache
// So a chunk is read while work on the one before it runs, and waits for none but that on the chunk whose slot it
// takes.
#include "shim/library/mapped.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "pool/base/parts.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/handles.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/queues.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

constexpr std::size_t kChunkUsually = std::size_t{256} << 20, kPieceMax = std::size_t{4} << 20;
constexpr unsigned kSlotsUsually = 2, kSlotsMax = 64, kLanes = 2;

// The program's errno stays what it was.
class KeptErrno {
 public:
  KeptErrno() : kept_(errno) {}
  ~KeptErrno() { errno = kept_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  const int kept_;
};

struct Lane {
  void* queue = nullptr;
  Taken piece;
  bool is_under_way = false;  // to or from the piece
};

struct Slot {
  Taken memory;
  Lane lanes[kLanes];
  std::uint64_t index = 0;  // of the chunk
  bool has_chunk = false, is_acquired = false, is_dirty = false;
  bool is_set_aside = false;  // dirty, and its last write-back failed
  std::uint64_t used = 0;     // larger: later
};

struct Mapped {
  static constexpr char kWhat[] = "mapped file";
  cistern_mapped_settings settings{};
  const KindMemory* memory = nullptr;  // the one for settings.kind
  void* context = nullptr;             // CISTERN_CURRENT: the one that was current when it was opened
  unsigned process = process_number;
  int file = -1;
  dev_t device = 0;  // the file's: a program that closes what it does not know of may have another one there
  ino_t inode = 0;
  Vector<Slot> slots;
  std::size_t piece_bytes = 0;
  std::uint64_t uses = 0;
  cistern_mapped_info info{};

  void begin_anew() {
    std::destroy_at(this);
    std::construct_at(this);
  }
  const KindQueues& queues() const { return *memory->queues; }
  // Page-locked, where there is such.
  const KindMemory& memory_of_pieces() const {
    return queues().pinned ? *queues().pinned : *library::memory_of(CISTERN_HOST);
  }
  bool is_inherited() const { return process != process_number; }
  std::size_t bytes_of(std::uint64_t index) const {
    return static_cast<std::size_t>(std::min(info.chunk_bytes, info.bytes - index * info.chunk_bytes));
  }
};

constinit Handles<Mapped, cistern_mapped, 5> files;
using Used = decltype(files)::Use;

cistern_status status_of_system(int error) {
  if (error == ENOENT) return refused(error, CISTERN_NOT_FOUND);
  if (error == EACCES || error == EPERM || error == EROFS) return refused(error, CISTERN_DENIED);
  if (error == EISDIR || error == ENXIO) return refused(error, CISTERN_INVALID);  // no plain file
  return refused(error, error == ENOMEM ? CISTERN_NO_MEMORY : CISTERN_DRIVER);
}

// --- Queues and memory of its own
cistern_status have_memory(Mapped& of, Slot& slot) {
  for (Lane& lane : slot.lanes) {
    const QueueRequest queue{of.settings.device, of.settings.context, of.settings.queue};
    cistern_status status = lane.queue ? CISTERN_OK : of.queues().make(queue, &lane.queue);
    if (status == CISTERN_OK && !lane.piece.address)
      status = take(request_for(of.settings, of.memory_of_pieces(), of.piece_bytes), &lane.piece);
    if (status != CISTERN_OK) return status;
  }
  if (slot.memory.address) return CISTERN_OK;
  const auto bytes = static_cast<std::size_t>(std::min(of.info.chunk_bytes, of.info.bytes));
  return take(request_for(of.settings, *of.memory, bytes), &slot.memory);
}

bool is_still_open(const Mapped& of) {
  struct stat now;
  return !fstat(of.file, &now) && now.st_dev == of.device && now.st_ino == of.inode;
}

cistern_status give_back(const KindMemory& memory, Taken& taken) {
  const cistern_status status = taken.address ? memory.give(taken, nullptr, {}) : CISTERN_OK;
  if (status == CISTERN_OK) taken = {};
  return status;
}

// Nothing uses it any more. Memory that the driver refuses to take stays, for another try.
cistern_status give_all(Mapped& of) {
  cistern_status first = CISTERN_OK;
  const auto note = [&](cistern_status status) {
    if (first == CISTERN_OK) first = status;
    return status == CISTERN_OK;
  };
  for (Slot& slot : of.slots) {
    slot.has_chunk = false;
    note(give_back(*of.memory, slot.memory));
    for (Lane& lane : slot.lanes) {
      note(give_back(of.memory_of_pieces(), lane.piece));
      if (lane.queue && note(of.queues().end(of.settings.device, lane.queue))) lane.queue = nullptr;
    }
  }
  return first;
}

// --- The file
cistern_status read_all(int file, char* to, std::size_t bytes, std::uint64_t offset) {
  while (bytes) {
    const ssize_t got = pread(file, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_of_system(errno);
    if (got == 0) return CISTERN_TRUNCATED;
    to += got, bytes -= static_cast<std::size_t>(got), offset += static_cast<std::uint64_t>(got);
  }
  return CISTERN_OK;
}

cistern_status write_all(int file, const char* from, std::size_t bytes, std::uint64_t offset) {
  while (bytes) {
    const ssize_t put = pwrite(file, from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return status_of_system(errno);
    if (put == 0) return status_of_system(ENOSPC);
    from += put, bytes -= static_cast<std::size_t>(put), offset += static_cast<std::uint64_t>(put);
  }
  return CISTERN_OK;
}

// A part that another process has cut off the file is not written again, and a write beyond a limit would raise a
// signal.
cistern_status check_writable(const Mapped& of, std::uint64_t bytes) {
  struct stat now;
  rlimit limit;
  if (fstat(of.file, &now)) return status_of_system(errno);
  if (static_cast<std::uint64_t>(now.st_size) < bytes) return CISTERN_TRUNCATED;
  return !getrlimit(RLIMIT_FSIZE, &limit) && bytes > limit.rlim_cur ? status_of_system(EFBIG) : CISTERN_OK;
}

void ask_to_read_ahead(const Mapped& of, std::uint64_t index) {
  if (index >= of.info.chunks || !is_still_open(of)) return;
  posix_fadvise(of.file, static_cast<off_t>(index * of.info.chunk_bytes), static_cast<off_t>(of.bytes_of(index)),
                POSIX_FADV_WILLNEED);
}

// --- Chunks to and fro
char* piece_of(const Lane& lane) { return reinterpret_cast<char*>(lane.piece.address); }

// Waits until the lane's piece is free.
cistern_status wait_for(const Mapped& of, Lane& lane) {
  if (!lane.is_under_way) return CISTERN_OK;
  const cistern_status status = queue_wait(of.settings.kind, of.settings.device, lane.queue);
  if (status == CISTERN_OK) lane.is_under_way = false;
  return status;
}

cistern_status enqueue(const Mapped& of, const Slot& slot, Lane& lane, Range part, bool to_device) {
  const BlockPart on_device{of.settings.kind, reinterpret_cast<void*>(slot.memory.address), part.begin};
  const BlockPart on_host{CISTERN_HOST, piece_of(lane), 0};
  lane.is_under_way = true;  // whatever it answers
  return copy_part(to_device ? on_device : on_host, to_device ? on_host : on_device, part.end - part.begin,
                   of.settings.device, lane.queue);
}

cistern_status fill(Mapped& of, Slot& slot, std::uint64_t index) {
  const std::size_t bytes = of.bytes_of(index);
  const std::uint64_t begin = index * of.info.chunk_bytes;
  unsigned turn = 0;
  for (std::size_t at = 0; at < bytes; at += of.piece_bytes, ++turn) {
    Lane& lane = slot.lanes[turn % kLanes];
    const Range part{at, std::min(at + of.piece_bytes, bytes)};
    cistern_status status = wait_for(of, lane);
    if (status == CISTERN_OK) status = read_all(of.file, piece_of(lane), part.end - part.begin, begin + at);
    if (status == CISTERN_OK) status = enqueue(of, slot, lane, part, true);
    if (status != CISTERN_OK) return status;
  }
  ++of.info.reads;
  of.info.bytes_read += bytes;
  return CISTERN_OK;
}

// One piece is on its way from the device while the one before it is written.
cistern_status write_chunk(Mapped& of, Slot& slot) {
  const std::size_t bytes = of.bytes_of(slot.index);
  const std::uint64_t begin = slot.index * of.info.chunk_bytes;
  if (!is_still_open(of)) return status_of_system(EBADF);
  if (const cistern_status status = check_writable(of, begin + bytes); status != CISTERN_OK) return status;
  const auto part = [&](std::size_t at) { return Range{at, std::min(at + of.piece_bytes, bytes)}; };
  cistern_status status = wait_for(of, slot.lanes[0]);
  if (status == CISTERN_OK) status = enqueue(of, slot, slot.lanes[0], part(0), false);
  unsigned turn = 0;
  for (std::size_t at = 0; at < bytes && status == CISTERN_OK; at += of.piece_bytes, ++turn) {
    Lane &lane = slot.lanes[turn % kLanes], &other = slot.lanes[(turn + 1) % kLanes];
    const std::size_t next = at + of.piece_bytes;
    if (next < bytes) status = wait_for(of, other);
    if (status == CISTERN_OK && next < bytes) status = enqueue(of, slot, other, part(next), false);
    if (status == CISTERN_OK) status = wait_for(of, lane);
    if (status == CISTERN_OK) status = write_all(of.file, piece_of(lane), part(at).end - at, begin + at);
  }
  return status;
}

cistern_status write_back(Mapped& of, Slot& slot) {
  const cistern_status status = write_chunk(of, slot);
  slot.is_set_aside = status != CISTERN_OK;
  if (status != CISTERN_OK) return status;
  slot.is_dirty = false;
  --of.info.dirty_chunks;
  ++of.info.writes;
  of.info.bytes_written += of.bytes_of(slot.index);
  return CISTERN_OK;
}

// --- Slots
Slot* slot_of(Mapped& of, std::uint64_t index) {
  for (Slot& slot : of.slots)
    if (slot.has_chunk && slot.index == index) return &slot;
  return nullptr;
}

// Slots that are not acquired, the one unused for longest first; those set aside come last.
std::size_t list_candidates(Mapped& of, Slot* (&candidates)[kSlotsMax]) {
  std::size_t count = 0;
  for (Slot& slot : of.slots)
    if (!slot.is_acquired) candidates[count++] = &slot;
  std::sort(candidates, candidates + count, [](const Slot* a, const Slot* b) {
    return a->is_set_aside != b->is_set_aside ? b->is_set_aside : a->used < b->used;
  });
  return count;
}

// A slot that holds no chunk any more. A dirty chunk that cannot be written back keeps its slot, and the next slot is
// tried: one bad chunk must not block the others. The error is for whoever flushes or closes the file; this call
// answers it only where no slot is left.
cistern_status free_slot(Mapped& of, Slot** free) {
  Slot* candidates[kSlotsMax];
  const std::size_t count = list_candidates(of, candidates);
  cistern_status first = CISTERN_BUSY;
  int code = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = *candidates[i];
    const cistern_status status = slot.is_dirty ? write_back(of, slot) : CISTERN_OK;
    if (i == 0) first = status, code = native;
    if (status != CISTERN_OK) continue;
    native = 0;
    slot.has_chunk = false;
    *free = &slot;
    return CISTERN_OK;
  }
  native = code;
  return first;
}

// Finds a slot and fills it with the contents of the chunk; the slot has no chunk yet.
cistern_status bring(Mapped& of, std::uint64_t index, cistern_access access, Slot** found) {
  if (!is_still_open(of)) return status_of_system(EBADF);
  cistern_status status = free_slot(of, found);
  if (status == CISTERN_OK) status = have_memory(of, **found);
  if (status == CISTERN_OK && access != CISTERN_OVERWRITE) status = fill(of, **found, index);
  return status;
}

// The program's queue after the lanes, or they after it.
cistern_status follow(const Mapped& of, const Slot& slot, void* queue, bool lanes_follow) {
  for (const Lane& lane : slot.lanes) {
    void* const first = lanes_follow ? queue : lane.queue;
    void* const then = lanes_follow ? lane.queue : queue;
    if (const cistern_status status = queue_follow(of.settings.kind, of.settings.device, then, first);
        status != CISTERN_OK)
      return status;
  }
  return CISTERN_OK;
}

// All work on chunks, whoever's: the lanes follow it.
cistern_status wait_for_lanes(Mapped& of) {
  for (Slot& slot : of.slots)
    for (Lane& lane : slot.lanes) {
      if (!lane.queue) continue;
      if (const cistern_status status = queue_wait(of.settings.kind, of.settings.device, lane.queue);
          status != CISTERN_OK)
        return status;
      lane.is_under_way = false;
    }
  return CISTERN_OK;
}

cistern_status write_back_all(Mapped& of) {
  cistern_status first = CISTERN_OK;
  int code = 0;
  for (Slot& slot : of.slots) {
    if (!slot.is_dirty || slot.is_acquired) continue;
    const cistern_status status = write_back(of, slot);
    if (first == CISTERN_OK && status != CISTERN_OK) first = status, code = native;
  }
  native = code;
  return first;
}

bool is_right(const Mapped& of, const void* queue) {
  return (queue || !of.queues().needs_queue) && is_for_all_threads(of.queues(), queue);
}

bool any_is_acquired(const Mapped& of) {
  return std::any_of(of.slots.begin(), of.slots.end(), [](const Slot& slot) { return slot.is_acquired; });
}

// --- Opening
bool is_right(cistern_mapped_settings& own) {
  if (!own.chunk_bytes) own.chunk_bytes = kChunkUsually;
  if (!own.chunks_on_device) own.chunks_on_device = kSlotsUsually;
  if (!own.path || own.chunks_on_device < 2 || own.chunks_on_device > kSlotsMax) return false;
  if (own.device < CISTERN_CURRENT || own.chunk_bytes > PTRDIFF_MAX / 2) return false;
  if (own.bytes > PTRDIFF_MAX || (own.bytes && !own.writable)) return false;
  const KindMemory* const memory = memory_of(own.kind);
  if (!memory || !memory->is_device) return false;
  return (own.context || !memory->of_context) && (own.queue || !memory->queues->needs_queue);
}

// Made where it is to be made and is not there: `*is_new`.
int open_or_make(const cistern_mapped_settings& own, bool* is_new) {
  constexpr int kTries = 10;  // another process may make and remove it
  const int flags = (own.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK;
  int file = open(own.path, flags);
  for (int i = 0; file < 0 && errno == ENOENT && own.bytes && i < kTries; ++i) {
    file = open(own.path, flags | O_CREAT | O_EXCL, 0666);
    *is_new = file >= 0;
    if (file < 0 && errno == EEXIST) file = open(own.path, flags);
  }
  return file;
}

cistern_status extend(int file, std::uint64_t bytes) {
  rlimit limit;
  if (!getrlimit(RLIMIT_FSIZE, &limit) && bytes > limit.rlim_cur) return status_of_system(EFBIG);  // no signal
  return ftruncate(file, static_cast<off_t>(bytes)) ? status_of_system(errno) : CISTERN_OK;
}

// Not one of the three that programs take for their own.
int away_from_standard(int file) {
  if (file < 0 || file > STDERR_FILENO) return file;
  const int moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(file);
  errno = error;
  return moved;
}

cistern_status open_file(const cistern_mapped_settings& own, int* file, struct stat* seen) {
  bool is_new = false;
  *file = away_from_standard(open_or_make(own, &is_new));
  if (*file < 0) return status_of_system(errno);
  cistern_status status = fstat(*file, seen) ? status_of_system(errno) : CISTERN_OK;
  if (status == CISTERN_OK && !S_ISREG(seen->st_mode)) status = CISTERN_INVALID;
  if (status == CISTERN_OK && static_cast<std::uint64_t>(seen->st_size) < own.bytes) {
    status = extend(*file, own.bytes);
    seen->st_size = static_cast<off_t>(own.bytes);
  }
  if (status == CISTERN_OK) return status;
  if (is_new) unlink(own.path);
  close(*file);
  return status;
}

}  // namespace

cistern_status mapped_open(const cistern_mapped_settings* settings, cistern_mapped** file) {
  const KeptErrno kept;
  native = 0;
  if (file) *file = nullptr;
  cistern_mapped_settings own{};
  if (!file || !read_sized(own, settings, offsetof(cistern_mapped_settings, context)) || !is_right(own))
    return CISTERN_INVALID;
  const KindMemory* const memory = memory_of(own.kind);
  void* context = nullptr;
  if (own.device == CISTERN_CURRENT)
    if (const cistern_status status = find_current_context(*memory->queues, &context); status != CISTERN_OK)
      return status;
  int opened = -1;
  struct stat seen;
  if (const cistern_status status = open_file(own, &opened, &seen); status != CISTERN_OK) return status;
  const auto bytes = static_cast<std::uint64_t>(seen.st_size);
  *file = files.make([&](Mapped& of) {
    of.settings = own;
    of.settings.path = nullptr;  // the caller's
    of.memory = memory;
    of.context = context;
    of.process = process_number;
    of.file = opened;
    of.device = seen.st_dev;
    of.inode = seen.st_ino;
    of.slots.resize(own.chunks_on_device);
    of.info.bytes = bytes;
    of.info.chunk_bytes = own.chunk_bytes;
    of.info.chunks = bytes / own.chunk_bytes + (bytes % own.chunk_bytes != 0);
    of.piece_bytes = std::min(kPieceMax, own.chunk_bytes);
  });
  if (*file) return CISTERN_OK;
  close(opened);
  return CISTERN_NO_MEMORY;
}

cistern_status mapped_close(cistern_mapped* handle) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  const KeptErrno kept;
  native = 0;
  Used file(files, "cistern_mapped_close", handle);
  if (!file) return CISTERN_INVALID;
  const InContext there(file->queues(), file->is_inherited() ? nullptr : file->context);
  if (!file->is_inherited()) {
    if (any_is_acquired(*file)) return CISTERN_BUSY;
    cistern_status status = write_back_all(*file);
    if (status == CISTERN_OK) status = wait_for_lanes(*file);
    if (status == CISTERN_OK) status = give_all(*file);
    if (status != CISTERN_OK) return status;
  }
  if (is_still_open(*file)) close(file->file);
  file.end();
  return CISTERN_OK;
}

cistern_status mapped_acquire(cistern_mapped* handle, uint64_t index, cistern_access access, void* queue,
                              void** address, size_t* bytes) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  const KeptErrno kept;
  native = 0;
  if (address) *address = nullptr;
  if (bytes) *bytes = 0;
  if (!address || !bytes || access < CISTERN_READ || access > CISTERN_OVERWRITE) return CISTERN_INVALID;
  const Used file(files, "cistern_mapped_acquire", handle);
  if (!file || !is_right(*file, queue)) return CISTERN_INVALID;
  if (index >= file->info.chunks) return CISTERN_BOUNDS;
  if (access != CISTERN_READ && !file->settings.writable) return CISTERN_DENIED;
  if (file->is_inherited()) return CISTERN_NO_DRIVER;
  const InContext there(file->queues(), file->context);
  Slot* slot = slot_of(*file, index);
  if (slot && slot->is_acquired) return CISTERN_BUSY;
  const bool is_hit = slot != nullptr;
  cistern_status status = is_hit ? CISTERN_OK : bring(*file, index, access, &slot);
  if (status == CISTERN_OK) status = follow(*file, *slot, queue, false);
  if (status != CISTERN_OK) return status;
  slot->has_chunk = slot->is_acquired = true;
  slot->index = index;
  slot->used = ++file->uses;
  if (access != CISTERN_READ && !slot->is_dirty) slot->is_dirty = true, ++file->info.dirty_chunks;
  ++file->info.accesses;
  file->info.hits += is_hit;
  *address = reinterpret_cast<void*>(slot->memory.address);
  *bytes = file->bytes_of(index);
  return CISTERN_OK;
}

cistern_status mapped_release(cistern_mapped* handle, uint64_t index, void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  const KeptErrno kept;
  native = 0;
  const Used file(files, "cistern_mapped_release", handle);
  if (!file || !is_right(*file, queue)) return CISTERN_INVALID;
  Slot* const slot = slot_of(*file, index);
  if (!slot || !slot->is_acquired) return CISTERN_INVALID;
  if (file->is_inherited()) return CISTERN_NO_DRIVER;
  const InContext there(file->queues(), file->context);
  if (const cistern_status status = follow(*file, *slot, queue, true); status != CISTERN_OK) return status;
  slot->is_acquired = false;
  ask_to_read_ahead(*file, index + 1);
  return CISTERN_OK;
}

cistern_status mapped_flush(cistern_mapped* handle) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  const KeptErrno kept;
  native = 0;
  const Used file(files, "cistern_mapped_flush", handle);
  if (!file) return CISTERN_INVALID;
  if (file->is_inherited()) return CISTERN_NO_DRIVER;
  const InContext there(file->queues(), file->context);
  // The chunks that could be written reach the disk even where another could not.
  const cistern_status written = write_back_all(*file);
  const int code = native;
  cistern_status status = is_still_open(*file) ? CISTERN_OK : status_of_system(EBADF);
  if (status == CISTERN_OK && file->settings.writable && fdatasync(file->file)) status = status_of_system(errno);
  if (written == CISTERN_OK) return status;
  native = code;
  return written;
}

cistern_status mapped_forget(cistern_mapped* handle) {
  native = 0;
  const Used file(files, "cistern_mapped_forget", handle);
  if (!file) return CISTERN_INVALID;
  for (Slot& slot : file->slots) {
    if (slot.is_acquired) continue;
    file->info.dirty_chunks -= slot.is_dirty;
    slot.is_dirty = slot.is_set_aside = slot.has_chunk = false;
  }
  return CISTERN_OK;
}

cistern_status mapped_get_info(cistern_mapped* handle, cistern_mapped_info* info) {
  native = 0;
  const bool has_room = clear_sized(info);
  const Used file(files, "cistern_mapped_get_info", handle);
  if (!file || !has_room) return CISTERN_INVALID;
  write_sized(info, file->info);
  return CISTERN_OK;
}

void mapped_before_fork() { files.before_fork(); }
void mapped_after_fork_in_parent() { files.after_fork_in_parent(); }
void mapped_after_fork_in_child() { files.after_fork_in_child(); }

}  // namespace cistern::library
