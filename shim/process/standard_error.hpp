// Where the shim's lines and reports may go: files that the process was started with, of which the program's standard
// error is one, only while they are what they were.
//
// Descriptor 2 may be closed and taken by a data file (daemons), or closed by an exit handler (coreutils), and so may
// any other. So the file behind it is noted when the process starts, and held under a private descriptor when exit
// begins. Later files on 2 are written to only when they are a terminal or another character device, or are open for
// appending (logs).
#pragma once
#include <sys/types.h>

#include <atomic>
#include <string_view>

namespace cistern {

// A file that the process was started with, known by the number of its descriptor. All calls are safe in a signal
// handler.
class InheritedFile {
 public:
  explicit constexpr InheritedFile(int number) : number_(number) {}
  InheritedFile(const InheritedFile&) = delete;
  InheritedFile& operator=(const InheritedFile&) = delete;

  int number() const { return number_; }
  // Idempotent, as hold().
  void note();
  void hold();
  void leave_alone() { noted_.store(kClosed, std::memory_order_release); }
  // The descriptor to write to, or -1: nowhere. Keeps errno.
  int descriptor();

 private:
  enum Noted : int { kNotNoted, kClosed, kOpen };

  bool may_be_written();

  const int number_;
  std::atomic<int> noted_{kNotNoted};
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::atomic<int> held_{-1};
};

void note_standard_error();
void hold_standard_error();

// The descriptor to write to, or -1: nowhere.
int standard_error();

// The whole text, whatever signals and partial writes come in between, without the SIGPIPE and SIGXFSZ that the plain
// program would not get. 0, or the errno of the write that failed. Keeps errno.
int write_whole(int descriptor, std::string_view text);

}  // namespace cistern
