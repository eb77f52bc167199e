// Small copies from pageable memory that are sent together (CISTERN_GATHER=on).
//
//   hold -> may_hold: no -> all that is held is sent, and the copy goes the usual way
//        -> begin: a bounce buffer of the context
//        -> the call copies the bytes there, next to those of the copy before where its target ends where this one
//        begins
//   send -> one copy of the driver's for each part of the bounce buffer, on the program's stream
//
// All copies that are held are of one stream, in the order of their calls. They are sent before anything else of the
// process reaches the driver: each call of it that the program can make comes through `before_call` first (the hooks in
// hooks/gathering.cpp, every other function in hooks/unhooked.cpp). Where that is not certain no copy is held (`stop`,
// unseen_calls.hpp). A copy is held only if all that the driver would check of it is known to be right. So what the
// program can see of it is only when it reaches the device: by polling memory, from the host or in a kernel. That is
// why the option is off unless asked for.
//
// Copies on a thread's default stream are never held: no other thread could send them.
#pragma once
#include <atomic>
#include <optional>

#include "pool/base/lock.hpp"
#include "pool/staging/ring.hpp"
#include "shim/cuda/contexts.hpp"
#include "stats/snapshot.hpp"

namespace cistern::cuda {

struct CudaState;
struct HostCopy;

enum class Sent : std::uint8_t {
#define SENT(name, text) name,
#include "shim/cuda/sent.def"
  count
};
enum class GatherOff : std::uint8_t {
  none,
#define GATHER_OFF(name, text) name,
#include "shim/cuda/gather_off.def"
};

// Copies are held, or an error of one has not been told.
inline constinit std::atomic<bool> copies_are_held{false};

// Whether a call may answer with the error of an earlier copy.
enum class Tells : bool { no, yes };
CUresult send_held(Sent why, Tells tells);
// Before anything that must not come before the copies that are held. An answer other than success is the call's.
inline CUresult before_call(Sent why, Tells tells = Tells::no) {
  if (!copies_are_held.load(std::memory_order_acquire)) [[likely]]
    return kSuccess;
  return send_held(why, tells);
}
// The program may call the driver unseen from now on.
void stop_gathering(GatherOff why, const char* function = nullptr);

class Gather {
 public:
  // An answer: the copy is held, or an error is told. Nothing: the copy goes the usual way; none is held now.
  std::optional<CUresult> hold(CudaState& s, const HostCopy& what);
  CUresult send(CudaState& s, Sent why, Tells tells);
  void stop(CudaState& s, GatherOff why, const char* function);
  void add_to(Snapshot& snapshot) const;

  void before_fork(CudaState& s);
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  // One copy of the driver's: bytes that lie together in the bounce buffer and on the device.
  struct Part {
    CUdeviceptr target;
    std::size_t at, bytes;
  };
  struct Batch {
    Context* context = nullptr;
    CUstream stream = nullptr;
    staging::Chunk* chunk = nullptr;  // null: nothing is held
    Vector<Part> parts;
    bool has_waited = false;  // for the work before it
    bool has_room(CUdeviceptr target, std::size_t bytes) const;
    std::size_t place_for(CUdeviceptr target) const;
    void add(CUdeviceptr target, std::size_t bytes);
  };
  // The calling thread alone changes the batch and sends it, with foreign code in it.
  class Alone;

  Context* may_hold(CudaState& s, const HostCopy& what);
  bool sees_all_calls(CudaState& s);
  bool begin(CudaState& s, Context& context, CUstream stream);
  bool wait_for_earlier_work(CudaState& s);
  void send_batch(CudaState& s, Sent why);
  CUresult copy_parts(CudaState& s, const Batch& batch);
  CUresult tell();
  void note_off(GatherOff why, const char* function);

  LongLock lock_;
  Batch batch_;
  CUresult late_ = kSuccess;  // the error that a call has to tell
  bool has_for_fork_ = false;
  std::atomic<GatherOff> off_{GatherOff::none};
  std::atomic<const char*> off_for_{nullptr};  // the function, where there is one
  std::atomic<std::uint64_t> modules_seen_{0};
  std::atomic<std::uint64_t> copies_{0}, bytes_{0}, submissions_{0}, sent_[static_cast<int>(Sent::count)]{};
};

}  // namespace cistern::cuda
