// Copies between pageable memory of the host and a device, through pinned chunks where that pays (pool/staging): which
// copies may go that way, which do, and what is known of either way.
#pragma once
#include <optional>

#include "backends/cuda/context.hpp"
#include "pool/staging/calibration.hpp"
#include "pool/staging/transfer.hpp"

namespace cistern::cuda {

struct CudaState;

// Why a copy that the program made from or to host memory was passed on.
enum class Unstaged : std::uint8_t {
  off,               // CISTERN_STAGING=off
  small,             // below the least size that is ever tried
  not_pageable,      // pinned, registered or managed
  shape,             // arrays by offset, open pitches, past the end of its block
  capturing,         // some stream captures
  host_page_tables,  // the device reads the host's page tables: there is nothing to stage
  unknown_context,   // no context, one that ends or is broken, a stream of another or an unknown one
  exiting,           // the process ends, or is a child of one that used CUDA
  filtered,          // the program set a filter of system calls
  native_wins,       // measured
  trial,             // the driver's own way, to measure it
  untouchable,       // not mapped, or not for this kind of access
  no_chunk,          // all are under way, or there is no pinned memory
  interrupted,       // in its midst: a capture begins or the context ends
  failed,            // a call of our own failed
  count
};
const char* unstaged_name(Unstaged reason);

// A copy between the host's memory and a device's.
struct HostCopy {
  bool to_device;
  bool waits;       // the call is not an Async one
  CUstream stream;  // 0 stands for neither default stream here
  staging::Side host;
  staging::Box box;
  CUdeviceptr device = 0;                    // linear, or
  const CUDA_MEMCPY3D* described = nullptr;  // both sides, as the program described them
  bool stageable = true;                     // no: of a shape that is passed on
};

// Of one device and direction.
struct StagedWay {
  staging::Calibration calibration;
  std::atomic<std::uint64_t> staged_copies{0}, staged_bytes{0}, passed_on_bytes{0};
  std::atomic<std::uint64_t> unstaged[static_cast<int>(Unstaged::count)]{};
};

class Staging {
 public:
  Staging();
  // Copies one way or the other. `native` makes the program's own call.
  template <class Native>
  CUresult copy(CudaState& s, const HostCopy& what, Native native) {
    Plan plan = begin(s, what);
    if (plan.way == staging::Way::staged) {
      const std::optional<CUresult> answer = stage(s, what, plan);
      return answer ? *answer : native();
    }
    const CUresult answer = native();
    end(s, what, plan, answer);
    return answer;
  }

  StagedWay& way(int device, bool to_device);
  template <class Visit>
  void for_each(Visit visit) {
    for (int device = 0; device < kDevices; ++device)
      for (const bool to_device : {true, false})
        if (StagedWay* way = ways_[device][to_device].load(std::memory_order_acquire)) visit(device, to_device, *way);
  }

  // A context's trials go with it.
  void forget(Context& context);
  void before_fork();
  void after_fork();
  void after_fork_in_child();

 private:
  static constexpr int kDevices = 64;

  struct Plan {
    staging::Way way = staging::Way::native;
    StagedWay* of = nullptr;
    Context* context = nullptr;
    bool trial = false;  // its times are wanted
    CUevent begun = nullptr, ended = nullptr;
    std::uint64_t begin_ns = 0;
  };
  // Two events on a stream, and what lay between them.
  struct Trial {
    Context* context;
    StagedWay* of;
    staging::Way way;
    CUevent begun, ended;
    std::uint64_t bytes, blocked_ns;
  };

  Plan begin(CudaState& s, const HostCopy& what);
  std::optional<CUresult> stage(CudaState& s, const HostCopy& what, Plan& plan);
  void end(CudaState& s, const HostCopy& what, Plan& plan, CUresult answer);

  std::optional<Unstaged> why_not(CudaState& s, const HostCopy& what, Context* context);
  bool reads_host_page_tables(CudaState& s, Device& device);
  void begin_trial(CudaState& s, const HostCopy& what, Plan& plan);
  void drop_trial(CudaState& s, Plan& plan);
  void end_trial(CudaState& s, const HostCopy& what, Plan& plan);
  // Takes in what the device's clock knows by now.
  void read_trials(CudaState& s, Context* context);
  static void put_away(CudaState& s, CUevent event);

  enum class Mode : std::uint8_t { automatic, on, off };

  const Mode mode_;  // CISTERN_STAGING
  std::atomic<StagedWay*> ways_[kDevices][2]{};
  std::atomic<signed char> page_tables_[kDevices]{};  // 0: not asked yet; 1: no; 2: yes
  Lock lock_;
  Vector<Trial> trials_;
  std::atomic<int> trials_open_{0};
};

}  // namespace cistern::cuda
