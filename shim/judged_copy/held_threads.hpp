// Other threads that could not be stopped (other_threads.hpp), each held for a moment where it is, in a signal handler:
// so what it has in registers lies on its stack. A call of the system that a thread waits in may return EINTR for it,
// which is why nobody is held unless that is asked for. A thread that blocks the signal, or does not answer in time, is
// not held.
#pragma once
namespace cistern {

class OtherThreads;

class HeldThreads {
 public:
  HeldThreads() = default;
  ~HeldThreads() { let_go(); }
  HeldThreads(const HeldThreads&) = delete;
  HeldThreads& operator=(const HeldThreads&) = delete;

  // Those that are not known completely; the others then are.
  void hold(OtherThreads& threads);
  void let_go();

 private:
  unsigned count_ = 0;
  int signal_ = 0;  // 0: none is held
};

}  // namespace cistern
