// Memory calls while a stream captures, in each capture mode, from the capturing thread and from another: the native
// answers, and a capture that is spoiled by exactly the calls that spoil it natively.
// harness: per-thread
#include <thread>

#include "../program.hpp"

constexpr size_t kBytes = 16384;

struct Mode {
  const char* name;
  cudaStreamCaptureMode mode;
};
static const Mode kModes[] = {{"global", cudaStreamCaptureModeGlobal},
                              {"thread-local", cudaStreamCaptureModeThreadLocal},
                              {"relaxed", cudaStreamCaptureModeRelaxed}};

// What is tried inside a capture; blocks for it exist before.
struct Things {
  void* device = nullptr;
  void* pinned = nullptr;
  void* made = nullptr;
  bool device_freed = false, pinned_freed = false, made_pinned = false;
};
using Attempt = cudaError_t (*)(Things&);
struct NamedAttempt {
  const char* name;
  Attempt attempt;
};
static const NamedAttempt kAttempts[] = {
    {"nothing", [](Things&) { return cudaSuccess; }},
    {"cudaMalloc", [](Things& things) { return cudaMalloc(&things.made, kBytes); }},
    {"cudaFree",
     [](Things& things) {
       const cudaError_t code = cudaFree(things.device);
       things.device_freed = code == cudaSuccess;
       return code;
     }},
    {"cudaMallocHost",
     [](Things& things) {
       things.made_pinned = true;
       return cudaMallocHost(&things.made, kBytes);
     }},
    {"cudaFreeHost",
     [](Things& things) {
       const cudaError_t code = cudaFreeHost(things.pinned);
       things.pinned_freed = code == cudaSuccess;
       return code;
     }},
    {"cudaDeviceSynchronize", [](Things&) { return cudaDeviceSynchronize(); }},
    {"cudaMemGetInfo",
     [](Things&) {
       size_t available = 0, total = 0;
       return cudaMemGetInfo(&available, &total);
     }},
    {"cudaPointerGetAttributes",
     [](Things& things) {
       cudaPointerAttributes attributes;
       return cudaPointerGetAttributes(&attributes, things.device);
     }},
};

// Answers are judged after the capture: the checks themselves must not spoil it.
static void try_inside(const Mode& mode, const NamedAttempt& attempt, bool from_another_thread, bool exchanged) {
  Things things;
  things.device = device_block(kBytes);
  things.pinned = pinned_block(kBytes);
  unsigned* target = device_block(kBytes);
  fill(nullptr, target, kBytes, 1);
  NEED(cudaDeviceSynchronize());
  // A cached block of each kind, so that a cache would have something to give.
  NEED(cudaFree(device_block(kBytes)));
  NEED(cudaFreeHost(pinned_block(kBytes)));
  cudaStream_t stream = new_stream();
  NEED(cudaStreamBeginCapture(stream, mode.mode));
  NEED(launch(stream, kBytes / 4, Fill{target, 2}));
  cudaError_t answer = cudaSuccess;
  auto act = [&] {
    cudaStreamCaptureMode other = cudaStreamCaptureModeRelaxed;
    if (exchanged) NEED(cudaThreadExchangeStreamCaptureMode(&other));
    answer = attempt.attempt(things);
    if (exchanged) NEED(cudaThreadExchangeStreamCaptureMode(&other));
    (void)cudaGetLastError();
  };
  if (from_another_thread)
    std::thread(act).join();
  else
    act();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(stream, &status);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  say("%s, %s%s%s: %s; status %s %d; end %s, a graph: %s", mode.name, attempt.name,
      from_another_thread ? ", other thread" : "", exchanged ? ", relaxed for the call" : "", name_of(answer),
      name_of(asked), static_cast<int>(status), name_of(ended), yes_no(graph != nullptr));
  forget_error();
  if (graph) {
    cudaGraphExec_t run = nullptr;
    NEED(cudaGraphInstantiate(&run, graph, 0));
    NEED(cudaGraphLaunch(run, stream));
    NEED(cudaStreamSynchronize(stream));
    say("  launched: %s", contents(target, kBytes).c_str());
    NEED(cudaGraphExecDestroy(run));
    NEED(cudaGraphDestroy(graph));
  }
  if (things.made) {
    ++(things.made_pinned ? made.pinned : made.device);
    NEED(things.made_pinned ? cudaFreeHost(things.made) : cudaFree(things.made));
  }
  if (!things.device_freed) NEED(cudaFree(things.device));
  if (!things.pinned_freed) NEED(cudaFreeHost(things.pinned));
  NEED(cudaFree(target));
  NEED(cudaStreamDestroy(stream));
}

int main() {
  NEED(cudaFree(nullptr));
  for (const Mode& mode : kModes) {
    for (const NamedAttempt& attempt : kAttempts) {
      try_inside(mode, attempt, false, false);
      try_inside(mode, attempt, true, false);
      try_inside(mode, attempt, false, true);
    }
  }
  return finish();
}
