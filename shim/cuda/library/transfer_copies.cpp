// Copies of a transfer (library/transfers.cpp): each of its threads has a stream, made for its first copy, and the
// transfer's context current until it ends.
#include <new>
#include <optional>

#include "pool/base/internal_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/library/queues.hpp"

namespace cistern::cuda {
namespace {

class OwnStream {
 public:
  OwnStream() = default;
  ~OwnStream() {
    if (stream_) hook::cuStreamDestroy_v2(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  CUresult copy(const cistern_copy_request& what) {
    CUresult answer = stream_ ? kSuccess : hook::cuStreamCreate(&stream_, kStreamNonBlocking);
    const auto address = [](const void* memory) {
      return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
    };
    if (answer == kSuccess)
      answer = hook::cuMemcpyAsync(address(what.target), address(what.source), what.bytes, stream_);
    return answer == kSuccess ? driver().cuStreamSynchronize(stream_) : answer;
  }

 private:
  CUstream stream_ = nullptr;
};

// The transfer's context, as long as a thread works for it.
class AtWork {
 public:
  AtWork(void* context, int device) : context_(static_cast<CUcontext>(context)), device_(device) {}
  ~AtWork() {
    stream_.reset();
    primary_.reset();
    CUcontext context = nullptr;
    if (pushed_) driver().cuCtxPopCurrent_v2(&context);
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  CUresult copy(const cistern_copy_request& what) {
    if (!stream_) {
      if (const CUresult answer = enter(); answer != kSuccess) return answer;
      stream_.emplace();
    }
    return stream_->copy(what);
  }

 private:
  CUresult enter() {
    if (pushed_ || (primary_ && *primary_)) return kSuccess;
    if (!context_) return primary_.emplace(device_).answer();
    const CUresult answer = driver().cuCtxPushCurrent_v2(context_);
    pushed_ = answer == kSuccess;
    return answer;
  }

  CUcontext const context_;
  const int device_;
  bool pushed_ = false;
  std::optional<OnDevice> primary_;
  std::optional<OwnStream> stream_;
};

}  // namespace

cistern_status make_copy(library::CopyThread& thread, const cistern_copy_request& what) {
  if (!thread.state) thread.state = new (internal_allocate(sizeof(AtWork))) AtWork(thread.context, thread.device);
  return status_of(static_cast<AtWork*>(thread.state)->copy(what));
}

void end_thread(library::CopyThread& thread) {
  auto* const at_work = static_cast<AtWork*>(thread.state);
  if (!at_work) return;
  at_work->~AtWork();
  internal_deallocate(at_work, sizeof *at_work);
}

bool is_final(int code) {
  return code == kInvalidValue || code == kInvalidContext || code == kInvalidHandle || code == kInvalidDevice ||
         code == kDeinitialized || is_sticky(code);
}

}  // namespace cistern::cuda
