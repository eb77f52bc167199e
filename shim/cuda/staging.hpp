// Copies between pageable memory of the host and a device, through pinned chunks where that pays (pool/staging): which
// copies may go that way, which do, and what is known of either way.
#pragma once
#include <optional>

#include "backends/cuda/context.hpp"
#include "pool/limits.hpp"
#include "pool/staging/transfer.hpp"
#include "pool/staging/turns.hpp"
#include "shim/staging/staged_way.hpp"

namespace cistern::cuda {

struct CudaState;
class StreamTurn;

// A copy between the host's memory and a device's.
struct HostCopy {
  bool to_device;
  bool waits;       // the call is not an Async one
  CUstream stream;  // 0 stands for neither default stream here
  staging::Side host;
  staging::Box box;
  bool pageable = true;
  CUdeviceptr device = 0;                    // linear, or
  const CUDA_MEMCPY3D* described = nullptr;  // both sides, as the program described them
  std::optional<Unstaged> unfit{};           // why it is passed on whatever the state of things
};

class Staging {
 public:
  // Copies one way or the other. `native` makes the program's own call.
  template <class Native>
  CUresult copy(CudaState& s, const HostCopy& what, StreamTurn& turn, Native native) {
    Plan plan = begin(s, what);
    if (plan.way == staging::Way::staged) {
      const std::optional<CUresult> answer = stage(s, what, turn, plan);
      return answer ? *answer : native();
    }
    const CUresult answer = native();
    end(s, what, plan, answer);
    return answer;
  }

  // Of a batch: whether it is left to the driver with the rest of the batch, which is counted.
  bool leaves(CudaState& s, const HostCopy& what) { return !choose(s, what).of; }

  StagedWays& ways() { return ways_; }
  // Where nothing is staged, nobody needs one.
  staging::Turns* turns() { return mode_ == StagingMode::off ? nullptr : &turns_; }

  void set_limits(const PoolLimits& limits) { interval_.set(limits); }
  // A context's trials go with it.
  void forget(Context& context);
  void before_fork();
  void after_fork();
  void after_fork_in_child();

 private:
  struct Plan {
    staging::Way way = staging::Way::native;
    StagedWay* of = nullptr;
    Context* context = nullptr;
    bool trial = false;  // its times are wanted
    CUevent begun = nullptr, ended = nullptr;
    std::uint64_t begin_ns = 0;
  };
  // Two events on a stream, and what lay between them; without a way, events to put away.
  struct Trial {
    Context* context;
    StagedWay* of;
    staging::Way way;
    CUevent begun, ended;
    std::uint64_t bytes, blocked_ns;
  };

  Plan choose(CudaState& s, const HostCopy& what);
  Plan begin(CudaState& s, const HostCopy& what);
  std::optional<Unstaged> begin_pieces(CudaState& s, const HostCopy& what, StreamTurn& turn);
  std::optional<CUresult> stage(CudaState& s, const HostCopy& what, StreamTurn& turn, Plan& plan);
  void end(CudaState& s, const HostCopy& what, Plan& plan, CUresult answer);

  std::optional<Unstaged> why_not(CudaState& s, const HostCopy& what, Context* context);
  bool reads_host_page_tables(CudaState& s, Device& device);
  void begin_trial(CudaState& s, const HostCopy& what, Plan& plan);
  void drop_trial(CudaState& s, Plan& plan);
  void end_trial(CudaState& s, const HostCopy& what, Plan& plan);
  // Takes in what the device's clock knows by now.
  void read_trials(CudaState& s, Context* context);
  void put_away(CudaState& s, Context* context, CUevent begun, CUevent ended);

  const StagingMode mode_ = staging_mode();
  StagedWays ways_;
  staging::Turns turns_;
  IntervalTrim interval_;                                         // of rings
  std::atomic<signed char> page_tables_[StagedWays::kDevices]{};  // 0: not asked yet; 1: no; 2: yes
  Lock lock_;
  Vector<Trial> trials_;
  std::atomic<int> trials_open_{0};
};

}  // namespace cistern::cuda
