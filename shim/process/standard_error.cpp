// See standard_error.hpp.
#include "shim/process/standard_error.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "pool/base/file_status.hpp"
#include "pool/base/private_descriptor.hpp"

namespace cistern {
namespace {

constexpr int kFullPipeMs = 2000;

constinit InheritedFile file_on_2(STDERR_FILENO);

bool is_log_like(const struct stat& file) {
  if (S_ISCHR(file.st_mode)) return true;
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  return flags != -1 && (flags & O_APPEND);
}

// Blocks the signals that a failing write raises, and takes back what this thread got of them.
class QuietWrites {
 public:
  QuietWrites() {
    sigemptyset(&failures_);
    sigaddset(&failures_, SIGPIPE);
    sigaddset(&failures_, SIGXFSZ);
    sigpending(&pending_before_);
    pthread_sigmask(SIG_BLOCK, &failures_, &mask_before_);
  }
  ~QuietWrites() {
    sigset_t ours;
    sigemptyset(&ours);
    for (int signal : {SIGPIPE, SIGXFSZ})
      if (!sigismember(&pending_before_, signal)) sigaddset(&ours, signal);
    const timespec no_wait{};
    while (sigtimedwait(&ours, nullptr, &no_wait) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  QuietWrites(const QuietWrites&) = delete;
  QuietWrites& operator=(const QuietWrites&) = delete;

 private:
  sigset_t failures_, pending_before_, mask_before_;
};

// A non-blocking descriptor whose reader is slow: worth a short wait, not a hang.
bool wait_until_writable(int descriptor) {
  pollfd waiting{descriptor, POLLOUT, 0};
  return poll(&waiting, 1, kFullPipeMs) == 1;
}

}  // namespace

void InheritedFile::note() {
  if (noted_.load(std::memory_order_acquire) != kNotNoted) return;
  struct stat file = {};
  const bool open = status_of_file(number_, file) == 0;
  if (open) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  noted_.store(open ? kOpen : kClosed, std::memory_order_release);
}

bool InheritedFile::may_be_written() {
  note();
  struct stat file = {};
  if (noted_.load(std::memory_order_acquire) != kOpen || status_of_file(number_, file) != 0) return false;
  return (file.st_dev == device_ && file.st_ino == inode_) || (number_ == STDERR_FILENO && is_log_like(file));
}

void InheritedFile::hold() {
  if (held_.load(std::memory_order_relaxed) != -1 || !may_be_written()) return;
  for (int lowest : kPrivateDescriptors) {
    const int copy = fcntl(number_, F_DUPFD_CLOEXEC, lowest);
    if (copy == -1) continue;
    int none = -1;
    if (!held_.compare_exchange_strong(none, copy)) close(copy);
    return;
  }
}

int InheritedFile::descriptor() {
  const int kept_errno = errno;
  const int copy = held_.load(std::memory_order_relaxed);
  const int descriptor = copy != -1 ? copy : may_be_written() ? number_ : -1;
  errno = kept_errno;
  return descriptor;
}

void note_standard_error() { file_on_2.note(); }
void hold_standard_error() { file_on_2.hold(); }
int standard_error() { return file_on_2.descriptor(); }

int write_whole(int descriptor, std::string_view text) {
  const int kept_errno = errno;
  int failure = 0;
  {
    QuietWrites quiet;
    while (!text.empty() && failure == 0) {
      const ssize_t written = write(descriptor, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR && !(errno == EAGAIN && wait_until_writable(descriptor))) {
        failure = errno;
      }
    }
  }
  errno = kept_errno;
  return failure;
}

}  // namespace cistern
