// See shared_files.hpp. A process is attached while it has a lock on the file, of this open file description
// (F_OFD_SETLK). The kernel drops the lock with the process, however that ends.
//
//   byte 0, shared     a process is attached
//   byte 0, exclusive  a process removes the file, because none was attached: a moment, without a wait inside
//   byte 1, exclusive  device memory: its owner lives
//
// 1. A file is complete, and its maker attached, before it gets a name (O_TMPFILE, linkat). So a maker that is killed
//    leaves nothing, and a file without a lock is not a new one. A taken name is never given to another file: linkat
//    does not replace.
// 2. Only a process with the exclusive lock on a file removes the file's name. So no file is removed while a process is
//    attached. The removed file is also the one that was judged: only the owner of this lock could change the name.
// 3. A process that opened a file may have found it a moment before it was removed. It is attached once it has the
//    shared lock and the file still has a name: by 2. the file keeps the name until the process leaves.
// 4. A process that leaves tries the exclusive lock. If it does not get it, it drops its own lock and tries once more.
//    Let L be the one of all processes leaving together whose own lock goes last: none of them is attached when L tries
//    again. L fails only if another process has a lock. If that lock is exclusive, its owner removes the file. If it is
//    shared, its owner is attached, and leaves by the same rule. So without deaths nothing is left behind.
// 5. A process that dies does none of that, and the file is a leftover: it has a name, and no lock. A process that
//    finds it gets the exclusive lock, and removes it as in 2. If two find it together, one has the lock. The other
//    waits for a shared lock, and sees that the file has no name. A remover that dies leaves a leftover, or nothing.
//
// Memory is mapped through another open file: a mapping keeps its open file, and a forked child the mapping, so with it
// the lock of a parent that is long dead. For the same reason the child closes what it inherited (the list below).
//
// System calls are made directly: errno stays, no thread is cancelled in one, and nothing that is interposed is called.
#include "shim/library/shared_files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <new>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/folder.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/system_call.hpp"
#include "shim/library/answers.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern::library {
namespace {

constexpr char kFolder[] = "/dev/shm";
constexpr off_t kAttached = 0, kOwner = 1;  // bytes
constexpr int kTriesMax = 1000;             // each means that another process removed a file meanwhile
constexpr std::size_t kNameBytesMax = 200;

template <class T>
std::uintptr_t word(T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
std::uintptr_t word(std::nullptr_t) { return 0; }
template <class T>
std::uintptr_t word(T number) {
  return static_cast<std::uintptr_t>(static_cast<long>(number));
}
template <class... Words>
long call(long number, Words... words) {
  return system_call(number, word(words)...);
}

cistern_status status_of_system(long answer) {
  const int error = static_cast<int>(-answer);
  if (error == ENOSPC || error == ENOMEM || error == EDQUOT || error == EFBIG) return refused(error, CISTERN_NO_MEMORY);
  if (error == EACCES || error == EPERM || error == ELOOP) return refused(error, CISTERN_DENIED);
  return error == ENOENT ? refused(error, CISTERN_NOT_FOUND) : refused(error);
}

// --- Locks
long lock_call(int file, int command, struct flock& lock) {
  long answer;
  do answer = call(SYS_fcntl, file, command, &lock);
  while (answer == -EINTR);
  return answer;
}

struct flock lock_of(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// Takes the lock without a wait, or not at all; then the lock held before stays.
bool take_lock(int file, short type, off_t byte) {
  struct flock lock = lock_of(type, byte);
  return lock_call(file, F_OFD_SETLK, lock) == 0;
}

bool others_have_lock(int file, off_t byte) {
  struct flock lock = lock_of(F_WRLCK, byte);
  return lock_call(file, F_OFD_GETLK, lock) == 0 && lock.l_type != F_UNLCK;
}

// The exclusive one is held for a moment, unless its process is stopped.
bool wait_for_shared_lock(int file) {
  constexpr timespec kPause{0, 100'000};
  constexpr int kPauses = 20'000;
  for (int i = 0; i < kPauses; ++i) {
    if (take_lock(file, F_RDLCK, kAttached)) return true;
    call(SYS_nanosleep, &kPause, nullptr);
  }
  return false;
}

// --- Files
bool look_at(int file, struct stat& seen) { return call(SYS_fstat, file, &seen) == 0; }
long look_at(const char* path, struct stat& seen) {
  return call(SYS_newfstatat, AT_FDCWD, path, &seen, AT_SYMLINK_NOFOLLOW);
}
bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// Never one of the three that a program may think it has closed.
long open_file(const char* path, int flags, unsigned mode = 0) {
  constexpr int kFirst = 3;
  long file;
  do file = call(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
  while (file == -EINTR);
  if (file < 0 || file >= kFirst) return file;
  const long moved = call(SYS_fcntl, file, F_DUPFD_CLOEXEC, kFirst);
  call(SYS_close, file);
  return moved;
}

FilePath path_of_descriptor(int file) {
  char digits[16];
  const char* const end = std::to_chars(digits, digits + sizeof digits, file).ptr;
  FilePath path("/proc/self/fd/");
  path.add({digits, static_cast<std::size_t>(end - digits)});
  return path;
}

bool read_header(int file, SharedHeader& header) {
  return call(SYS_pread64, file, &header, sizeof header, 0) == static_cast<long>(sizeof header) &&
         header.magic == SharedHeader::kMagic;
}

// Memory for the whole file, now: a full system is an error here, and no SIGBUS later. In pieces, between which signals
// are served: a piece that a signal interrupts begins again, and one large piece might never end where signals come
// often.
long reserve(int file, std::size_t bytes) {
  constexpr std::size_t kPiece = 16 << 20;
  rlimit limit{};
  call(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit);
  if (bytes > limit.rlim_cur) return -EFBIG;  // the call would raise SIGXFSZ
  struct statfs system {};
  const bool known = call(SYS_fstatfs, file, &system) == 0 && system.f_blocks;
  if (known && bytes / static_cast<std::size_t>(system.f_bsize) > system.f_bavail) return -ENOSPC;  // not filled first
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    const SignalsBlocked blocked;
    if (const long answer = call(SYS_fallocate, file, 0, done, piece); answer != 0) return answer;
    done += piece;
  }
  return 0;
}

// --- The list of open ones: for fork, and for the end of the process
struct Listed {
  std::uint64_t id;
  int file;
  pid_t process;
  bool has_left;
  dev_t device;
  ino_t inode;
  void* owned;      // device memory of this process's
  SharedName name;  // path empty: none yet, or another user's
};

constinit Lock files_lock;  // for the list; it is held while files are opened and closed, and for no longer work
constinit Vector<Listed>* listed = nullptr;
constinit std::uint64_t ids = 0;

Listed* find(std::uint64_t id) {
  if (!id || !listed) return nullptr;
  for (Listed& one : *listed)
    if (one.id == id) return one.process == this_process() ? &one : nullptr;
  return nullptr;
}

// A program that closes what it does not know of may have another file there now.
bool is_still_open(const Listed& one) {
  struct stat now {};
  return look_at(one.file, now) && now.st_dev == one.device && now.st_ino == one.inode;
}

// With the exclusive lock.
bool remove_name(const Listed& one) {
  struct stat own {
  }, named{};
  SharedHeader header;
  return look_at(one.file, own) && own.st_uid == own_user() && read_header(one.file, header) &&
         look_at(one.name.path, named) == 0 && same_file(own, named) &&
         call(SYS_unlinkat, AT_FDCWD, one.name.path, 0) == 0;
}

// True: it was the last one, and has removed the file.
bool give_up(Listed& one) {
  if (std::exchange(one.has_left, true) || !is_still_open(one)) return false;
  bool is_last = take_lock(one.file, F_WRLCK, kAttached);
  if (!is_last) {
    take_lock(one.file, F_UNLCK, kAttached);
    is_last = *one.name.path && take_lock(one.file, F_WRLCK, kAttached);
  }
  return is_last && *one.name.path && remove_name(one);
}

void leave_all_at_exit() {
  if (system_calls_are_filtered() || files_lock.held_here()) return;
  const Locked hold(files_lock);
  if (!listed) return;
  for (Listed& one : *listed)
    if (one.process == this_process()) give_up(one);  // its memory stays: destructors may look at it
}

// Opened and listed in one: a child of a fork must not keep one that is not listed.
long open_listed(const char* path, int flags, std::uint64_t* id) {
  static constinit std::atomic<bool> leaves_at_exit{false};
  if (!leaves_at_exit.exchange(true)) atexit(leave_all_at_exit);
  const Locked hold(files_lock);
  if (!listed) listed = new (internal_allocate(sizeof(Vector<Listed>))) Vector<Listed>;
  const long file = open_file(path, flags, 0600);
  if (file < 0) return file;
  struct stat seen {};
  look_at(static_cast<int>(file), seen);
  *id = ++ids;
  listed->push_back({*id, static_cast<int>(file), this_process(), false, seen.st_dev, seen.st_ino, nullptr, {}});
  return file;
}

void give_name(std::uint64_t id, const SharedName& name) {
  const Locked hold(files_lock);
  if (Listed* const one = find(id)) one->name = name;
}

bool is_plain_file_of(const struct stat& seen, uid_t user) { return S_ISREG(seen.st_mode) && seen.st_uid == user; }

}  // namespace

uid_t own_user() { return static_cast<uid_t>(call(SYS_geteuid)); }

bool make_shared_name(SharedName& name, const char* given, uid_t user) {
  if (!given || *given == '.') return false;
  const std::size_t bytes = strnlen(given, kNameBytesMax + 1);
  constexpr char kAllowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (!bytes || bytes > kNameBytesMax || strspn(given, kAllowed) != bytes) return false;
  char digits[16];
  const char* const end = std::to_chars(digits, digits + sizeof digits, user).ptr;
  FilePath path(kFolder);
  path.add("/cistern-");
  path.add({digits, static_cast<std::size_t>(end - digits)});
  path.add("-");
  path.add({given, bytes});
  static_assert(sizeof kFolder + sizeof "/cistern--" + sizeof digits + kNameBytesMax <= sizeof name.path);
  strcpy(name.path, path.text());
  name.user = user;
  return true;
}

bool SharedFile::is_here() const {
  const Locked hold(files_lock);
  return find(id_);
}

bool SharedFile::is_inherited() const { return id_ && !is_here(); }

bool SharedFile::leave() {
  const Locked hold(files_lock);
  Listed* const one = find(std::exchange(id_, 0));
  if (!one) return false;
  const bool removed = give_up(*one);
  if (is_still_open(*one)) call(SYS_close, one->file);
  *one = listed->back();
  listed->pop_back();
  return removed;
}

cistern_status SharedFile::make(const SharedHeader& header, unsigned mode) {
  const std::size_t payload = header.kind == CISTERN_HOST ? header.bytes : 0;
  if (payload > static_cast<std::size_t>(INT64_MAX) - page_bytes()) return refused(EFBIG, CISTERN_NO_MEMORY);
  const long file = open_listed(kFolder, O_TMPFILE | O_RDWR, &id_);
  if (file < 0) return refused(static_cast<int>(-file));
  file_ = static_cast<int>(file);
  long answer = reserve(file_, page_bytes() + payload);
  if (!answer) answer = std::min(0L, call(SYS_pwrite64, file_, &header, sizeof header, 0));
  if (!answer) answer = call(SYS_fchmod, file_, mode);  // the umask does not count
  if (answer) return status_of_system(answer);
  return take_lock(file_, F_RDLCK, kAttached) ? CISTERN_OK : refused(ENOLCK);
}

cistern_status SharedFile::publish(const SharedName& name) {
  const FilePath self = path_of_descriptor(file_);
  for (int i = 0; i < kTriesMax; ++i) {
    const long answer = call(SYS_linkat, AT_FDCWD, self.text(), AT_FDCWD, name.path, AT_SYMLINK_FOLLOW);
    if (answer == 0) {
      give_name(id_, name);
      return CISTERN_OK;
    }
    if (answer != -EEXIST) return answer == -ENOENT ? refused(ENOENT) : status_of_system(answer);
    if (const cistern_status status = shared_name_is_free(name); status != CISTERN_OK) return status;
  }
  return CISTERN_BUSY;
}

// Looks at the file before it opens it, because opening another user's pipe or device may have an effect. It looks
// again afterwards, as the file may be another one by then.
cistern_status SharedFile::open_existing(const SharedName& name, Access access, SharedHeader* header, bool* is_whole) {
  struct stat seen {};
  if (const long answer = look_at(name.path, seen); answer != 0) return status_of_system(answer);
  if (!is_plain_file_of(seen, name.user)) return refused(EPERM, CISTERN_DENIED);
  const bool is_own = name.user == own_user();
  const int how = access == Access::to_write || is_own ? O_RDWR : O_RDONLY;  // the exclusive lock is for writers
  const long file = open_listed(name.path, how | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, &id_);
  if (file < 0) return status_of_system(file);
  file_ = static_cast<int>(file);
  if (!look_at(file_, seen) || !is_plain_file_of(seen, name.user) || seen.st_nlink > 1)
    return refused(EPERM, CISTERN_DENIED);
  if (!read_header(file_, *header)) return CISTERN_MISMATCH;
  const std::uint64_t payload = header->kind == CISTERN_HOST ? header->bytes : 0;
  *is_whole = payload <= INT64_MAX && static_cast<std::uint64_t>(seen.st_size) >= page_bytes() + payload;
  if (is_own) give_name(id_, name);
  return CISTERN_OK;
}

// From a leftover leave() removes the name: it has the lock then.
SharedFile::Found SharedFile::enter(bool may_write) {
  if (may_write ? take_lock(file_, F_WRLCK, kAttached) : !others_have_lock(file_, kAttached)) {
    struct stat seen {};
    return look_at(file_, seen) && seen.st_nlink == 0 ? Found::gone : Found::leftover;
  }
  if (!wait_for_shared_lock(file_)) return Found::blocked;
  struct stat seen {};
  return look_at(file_, seen) && seen.st_nlink > 0 ? Found::in_use : Found::gone;
}

cistern_status SharedFile::attach(const SharedName& name, Access access, SharedHeader* header, bool* is_whole) {
  for (int i = 0; i < kTriesMax; ++i) {
    leave();
    const cistern_status status = open_existing(name, access, header, is_whole);
    if (status != CISTERN_OK) return status;
    switch (enter(access == Access::to_write || name.user == own_user())) {
      case Found::in_use:
        return CISTERN_OK;
      case Found::leftover:
        leave();
        return refused(ENOENT, CISTERN_NOT_FOUND);
      case Found::blocked:
        return CISTERN_BUSY;
      case Found::gone:
        break;
    }
  }
  return CISTERN_BUSY;
}

cistern_status shared_name_is_free(const SharedName& name) {
  SharedHeader header;
  bool is_whole = false;
  SharedFile file;
  switch (const cistern_status status = file.attach(name, SharedFile::Access::to_write, &header, &is_whole)) {
    case CISTERN_NOT_FOUND:
      native = 0;
      return CISTERN_OK;
    case CISTERN_OK:
    case CISTERN_MISMATCH:
      return CISTERN_EXISTS;
    default:
      return status;
  }
}

cistern_status SharedFile::map(std::size_t bytes, Access access, void** memory) const {
  const bool to_write = access == Access::to_write;
  const long file = open_file(path_of_descriptor(file_).text(), to_write ? O_RDWR : O_RDONLY);
  if (file < 0) return refused(static_cast<int>(-file));
  const int error_before = errno;
  void* const mapped = mmap(nullptr, bytes, to_write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                            static_cast<int>(file), static_cast<off_t>(page_bytes()));
  const int error = std::exchange(errno, error_before);
  call(SYS_close, file);
  if (mapped == MAP_FAILED) return status_of_system(-error);
  *memory = mapped;
  return CISTERN_OK;
}

// A process that looks whether the name is taken is attached for a moment.
bool SharedFile::is_last() {
  constexpr timespec kPause{0, 100'000};
  constexpr int kPauses = 20;
  for (int i = 0; i < kPauses; ++i) {
    if (take_lock(file_, F_WRLCK, kAttached)) return true;
    call(SYS_nanosleep, &kPause, nullptr);
  }
  return false;
}

bool SharedFile::say_owner(void* memory) {
  const Locked hold(files_lock);
  Listed* const one = find(id_);
  if (one) one->owned = memory;
  return one && take_lock(file_, F_WRLCK, kOwner);
}

bool SharedFile::owner_lives() const { return owned_here() || (is_here() && others_have_lock(file_, kOwner)); }

void* SharedFile::owned_here() const {
  const Locked hold(files_lock);
  const Listed* const own = find(id_);
  if (!own) return nullptr;
  for (const Listed& one : *listed)
    if (one.owned && one.device == own->device && one.inode == own->inode && one.process == own->process)
      return one.owned;
  return nullptr;
}

bool SharedFile::remove_leftover(const SharedName& name) {
  SharedHeader header;
  bool is_whole = false;
  SharedFile file;
  return file.open_existing(name, Access::to_write, &header, &is_whole) == CISTERN_OK &&
         take_lock(file.file_, F_WRLCK, kAttached) && file.leave();
}

cistern_status clean_shared_files(std::size_t* removed) {
  constexpr std::size_t kPrefixBytes = sizeof "cistern-" - 1;
  const long folder = open_file(kFolder, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return status_of_system(folder);
  visit_names(folder, [removed](const char* file_name) {
    const char* const given =
        strncmp(file_name, "cistern-", kPrefixBytes) ? nullptr : strchr(file_name + kPrefixBytes, '-');
    SharedName name;
    if (given && make_shared_name(name, given + 1, own_user()) && !strcmp(name.path + sizeof kFolder, file_name))
      *removed += SharedFile::remove_leftover(name);
    return false;
  });
  call(SYS_close, folder);
  native = 0;
  return CISTERN_OK;
}

// --- Fork
void shared_files_before_fork() { files_lock.lock_for_fork(); }
void shared_files_after_fork_in_parent() { files_lock.unlock_after_fork(); }
void shared_files_after_fork_in_child() {
  if (listed) {
    for (const Listed& one : *listed)
      if (is_still_open(one)) call(SYS_close, one.file);
    listed->clear();
  }
  files_lock.unlock_after_fork();
}

}  // namespace cistern::library
