// The other threads of this process as they stand in one moment: where the stack of each is, and what it has in
// registers. Pointers there may be the only ones to a block.
//
// A helper process stops them by ptrace for as long as the caller makes a copy of the memory: they get no signal, and
// the calls of the system that they wait in go on afterwards as if nothing had been. Most calls the kernel restarts by
// itself. Some answer EINTR (epoll_wait, sigtimedwait, semop, io_getevents, sockets with a time-out): those the helper
// lets be made once more, with their time-out anew. Threads in calls that may have done a part of their work and would
// say so (write, recv with MSG_WAITALL, ioctl) are not stopped, nor those in a call that nobody here knows: of them
// only the stack pointer is known, as /proc has it.
//
// What remains: a thread that runs when it is looked at, and begins such a call before the stop comes to it (some
// microseconds later), gets the short answer that any stop by a shell's job control would give it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cistern {

enum class Progress : std::uint8_t { none, asked, refused, stopped, let_go };

struct OtherThread {
  static constexpr std::size_t kWords = 448;

  int id;                         // 0: ended
  int number;                     // what `id` was at first
  int signal;                     // that it was about to get
  Progress progress;              // of stopping it
  bool is_complete;               // all its registers are in `words`
  bool is_steady;                 // not stopped, but it waited in one and the same call while the copy was made
  std::uintptr_t stack;           // pointer; 0: not known
  std::uintptr_t thread_pointer;  // 0: not known
  std::size_t word_count;
  std::uintptr_t words[kWords];
};

class OtherThreads {
 public:
  // What the table takes. Threads that begin meanwhile need room too.
  static std::size_t table_bytes();
  // `table`: memory that this process, the helper and the copy share, zero.
  OtherThreads(void* table, std::size_t bytes);
  ~OtherThreads();
  OtherThreads(const OtherThreads&) = delete;
  OtherThreads& operator=(const OtherThreads&) = delete;

  // Where they wait; those that run are asked again, `tries` times all together. `own_thread`: one of ours, which
  // nobody needs to see.
  void look(int own_thread, int tries);
  // Behind look(): all that may be, until let_go().
  void stop();
  void let_go();

  // When the copy is made: which of those that were not stopped wait where they did. The copy awaits the answer.
  void look_again();
  void await_second_look() const;

  std::span<OtherThread> all() const;
  // From the first one's stop until all went on; 0: none was stopped.
  std::uint64_t stopped_ns() const;
  // Whether this is the number of one of them; where nobody knows: yes.
  bool knows(int id) const;
  // How many there was no room for.
  unsigned left_out() const;

 private:
  struct Table;

  bool helper_has_ended();

  Table& table_;
  void* helper_stack_ = nullptr;
  long helper_ = 0;  // its number
  bool names_tracer_ = false;
};

// The program let that process trace it (PR_SET_PTRACER): so it is again when the helper has done its work.
void note_permitted_tracer(std::uintptr_t process);

}  // namespace cistern
