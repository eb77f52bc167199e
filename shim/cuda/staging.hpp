// Copies between pageable memory of the host and a device, through bounce buffers where that is faster: CUDA's part of
// the engine (shim/staging/engine.hpp), which decides and measures.
#pragma once
#include <optional>

#include "backends/cuda/context.hpp"
#include "pool/staging/transfer.hpp"
#include "shim/staging/engine.hpp"

namespace cistern::cuda {

struct CudaState;
class StreamTurn;
// Gives back the chunks that no copy uses. Returns their bytes.
std::uint64_t trim_rings(CudaState& s, std::uint64_t unused_for_ns, std::uint64_t now_ns);

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
  std::optional<Unstaged> unfit{};           // the reason why such a call is never staged

  // A copy of bytes in a row, whose end the call waits for.
  bool has_parts() const { return (waits || !to_device) && !described; }
  HostCopy part(std::size_t first_byte, std::size_t bytes) const {
    HostCopy part = *this;
    part.host.base += first_byte;
    part.device += first_byte;
    part.box = {bytes};
    return part;
  }
};

struct StagingTypes {
  using State = CudaState;
  using Copy = HostCopy;
  using Turn = StreamTurn;
  using Answer = CUresult;
  struct CopyContext {
    Context* context = nullptr;
    int device = 0;
  };
  // Two events on the stream, and what lies between them.
  struct Trial {
    CUevent begun = nullptr, ended = nullptr;
    explicit operator bool() const { return begun; }
  };
  static constexpr CUresult kSuccess = cuda::kSuccess;
};

class Staging : public StagingEngine<Staging, StagingTypes> {
 public:
  // A context's trials go with it.
  void forget(Context& context);
  void after_fork_in_child();

 private:
  friend class StagingEngine<Staging, StagingTypes>;

  // A trial whose time is not read yet. If `of` is null, only its events have to be destroyed.
  struct OpenTrial {
    Context* context;
    CopyAccount* of;
    staging::Way way;
    Trial events;
    std::uint64_t bytes;  // of the copy
    Tried tried;
  };

  // --- For the engine, which says what each does
  CopyContext context_of_copy(CudaState& s, const HostCopy& what);
  std::optional<Unstaged> why_not(CudaState& s, const HostCopy& what, const CopyContext& copy_context);
  bool reads_host(CudaState& s, const CopyContext& copy_context);
  void take_in_trials(CudaState& s, const CopyContext& copy_context);
  Trial begin_trial(CudaState& s, const HostCopy& what, const CopyContext& copy_context);
  bool copy_part(CudaState& s, const HostCopy& part, const CopyContext& copy_context);
  std::optional<Unstaged> wait_for_earlier_work(CudaState& s, const HostCopy& what);
  bool is_idle(CudaState& s, const HostCopy& what);
  Passage pass_ring(CudaState& s, const HostCopy& what, const CopyContext& copy_context, ReadAhead::Copy& ahead,
                    StreamTurn& turn);
  void end_trial(CudaState& s, const HostCopy& what, const Plan& plan, CUresult answer, const Tried& tried);
  void drop_trial(CudaState& s, const CopyContext& copy_context, const Trial& trial) {
    put_away(s, copy_context.context, trial);
  }

  void put_away(CudaState& s, Context* context, const Trial& trial);

  std::atomic<signed char> page_tables_[CopyAccounts::kDevices]{};  // 0: not asked yet; 1: no; 2: yes
  Vector<OpenTrial> trials_;
  std::atomic<int> trials_open_{0};
};

}  // namespace cistern::cuda
