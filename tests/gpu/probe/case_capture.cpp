// Which calls are refused while a stream captures, and whether they invalidate the capture: by capture mode, from the
// capturing thread and from another one, and from the capturing thread after it exchanged its mode to relaxed.
// An answer is "<the call> / <cuStreamEndCapture afterwards>".
#include <functional>
#include <thread>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

struct Setting {
  const char* name;
  CUstreamCaptureMode mode;
  bool other_thread;
  bool exchanged;  // the calling thread is relaxed while it calls
};

constexpr Setting kSettings[] = {
    {"global.same", CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
    {"global.other", CU_STREAM_CAPTURE_MODE_GLOBAL, true, false},
    {"global.exchanged", CU_STREAM_CAPTURE_MODE_GLOBAL, false, true},
    {"global.other_exchanged", CU_STREAM_CAPTURE_MODE_GLOBAL, true, true},
    {"local.same", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false},
    {"local.other", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, false},
    {"relaxed.same", CU_STREAM_CAPTURE_MODE_RELAXED, false, false},
    {"relaxed.other", CU_STREAM_CAPTURE_MODE_RELAXED, true, false},
};

// What the calls work on, made before the capture begins.
struct Subjects {
  CUstream idle = nullptr;  // not capturing
  CUevent recorded = nullptr;
  CUdeviceptr block = 0;
  void* host_block = nullptr;
  int word = 0;
};

struct Call {
  const char* name;
  std::function<CUresult(Subjects&)> make;
  // Whether the mode decides ("potentially unsafe" in CUDA's documentation), or always allowed, or never.
  enum Rule { kByMode, kAllowed, kRefused } rule;
};

template <class Make>
CUresult under_relaxed(Make make) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  const CUresult answer = make();
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  return answer;
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"cuMemAlloc",
       [](Subjects&) {
         CUdeviceptr pointer = 0;
         return driver().cuMemAlloc(&pointer, 4096);
       },
       Call::kByMode},
      {"cuMemFree", [](Subjects& on) { return driver().cuMemFree(on.block); }, Call::kByMode},
      {"cuMemHostAlloc",
       [](Subjects&) {
         void* pointer = nullptr;
         return driver().cuMemHostAlloc(&pointer, 4096, 0);
       },
       Call::kByMode},
      {"cuMemFreeHost", [](Subjects& on) { return driver().cuMemFreeHost(on.host_block); }, Call::kByMode},
      {"cuStreamSynchronize_idle", [](Subjects& on) { return driver().cuStreamSynchronize(on.idle); }, Call::kByMode},
      {"cuStreamQuery_idle", [](Subjects& on) { return driver().cuStreamQuery(on.idle); }, Call::kByMode},
      {"cuEventQuery", [](Subjects& on) { return driver().cuEventQuery(on.recorded); }, Call::kByMode},
      {"cuEventSynchronize", [](Subjects& on) { return driver().cuEventSynchronize(on.recorded); }, Call::kByMode},
      {"cuCtxSynchronize", [](Subjects&) { return driver().cuCtxSynchronize(); }, Call::kRefused},
      {"cuEventRecord_idle", [](Subjects& on) { return driver().cuEventRecord(on.recorded, on.idle); }, Call::kAllowed},
      {"cuMemGetInfo",
       [](Subjects&) {
         size_t free_bytes = 0, total_bytes = 0;
         return driver().cuMemGetInfo(&free_bytes, &total_bytes);
       },
       Call::kAllowed},
      {"cuPointerGetAttribute",
       [](Subjects& on) {
         unsigned long long identity = 0;
         return driver().cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, on.block);
       },
       Call::kAllowed},
      {"cuEventCreate",
       [](Subjects&) {
         CUevent event = nullptr;
         return driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
       },
       Call::kAllowed},
      {"cuMemAllocAsync_idle",
       [](Subjects& on) {
         CUdeviceptr pointer = 0;
         return driver().cuMemAllocAsync(&pointer, 4096, on.idle);
       },
       Call::kByMode},
      // What Cistern does with blocks when a program's own call is out of memory during a capture: idle ones, then all.
      {"cuMemFree_under_relaxed",
       [](Subjects& on) { return under_relaxed([&] { return driver().cuMemFree(on.block); }); }, Call::kAllowed},
      {"cuMemFree_of_used_under_relaxed",
       [](Subjects& on) {
         driver().cuMemcpyHtoDAsync(on.block, &on.word, sizeof on.word, on.idle);
         return under_relaxed([&] { return driver().cuMemFree(on.block); });
       },
       Call::kAllowed},
      {"cuMemFreeHost_under_relaxed",
       [](Subjects& on) { return under_relaxed([&] { return driver().cuMemFreeHost(on.host_block); }); },
       Call::kAllowed},
      {"cuMemcpyHtoDAsync_idle",
       [](Subjects& on) { return driver().cuMemcpyHtoDAsync(on.block, &on.word, sizeof on.word, on.idle); },
       Call::kAllowed},
  };
  return all;
}

bool is_unsafe_in(const Setting& setting) {
  if (setting.exchanged || setting.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  return !setting.other_thread || setting.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

std::string assumed(const Setting& setting, const Call& call) {
  const bool refused = call.rule == Call::kRefused || (call.rule == Call::kByMode && is_unsafe_in(setting));
  return refused ? "capture_unsupported / capture_invalidated" : "ok / ok";
}

std::string rule_name(const Setting& setting, const Call& call) {
  return std::string("capture.") + setting.name + "." + call.name;
}

std::string measure(const Setting& setting, const Call& call, CUcontext context) {
  Subjects subjects;
  subjects.idle = create_stream();
  subjects.block = allocate(4096);
  subjects.host_block = allocate_host(4096);
  PROBE_MUST(driver().cuEventCreate(&subjects.recorded, CU_EVENT_DISABLE_TIMING));
  PROBE_MUST(driver().cuEventRecord(subjects.recorded, subjects.idle));
  PROBE_MUST(driver().cuCtxSynchronize());
  const CUstream capturing = create_stream();
  PROBE_MUST(driver().cuStreamBeginCapture(capturing, setting.mode));
  CUresult called = CUDA_SUCCESS;
  const auto make = [&] {
    called = setting.exchanged ? under_relaxed([&] { return call.make(subjects); }) : call.make(subjects);
  };
  if (setting.other_thread) {
    std::thread([&] {
      driver().cuCtxSetCurrent(context);
      make();
    }).join();
  } else {
    make();
  }
  CUgraph graph = nullptr;
  const CUresult ended = driver().cuStreamEndCapture(capturing, &graph);
  if (graph != nullptr) driver().cuGraphDestroy(graph);
  return name_of(called) + " / " + name_of(ended);
}

void run_setting(const Setting& setting) {
  const CUcontext context = open_device();
  for (const Call& call : calls()) answer(rule_name(setting, call), measure(setting, call, context));
}

template <int index>
Case setting_case(const char* name) {
  Case made{name, "calls while a stream captures", 15, {}, [] { run_setting(kSettings[index]); }};
  for (const Call& call : calls())
    made.rules.push_back({rule_name(kSettings[index], call), assumed(kSettings[index], call)});
  return made;
}

const Registration registrations[] = {
    Registration(setting_case<0>("capture_global_same")),
    Registration(setting_case<1>("capture_global_other")),
    Registration(setting_case<2>("capture_global_exchanged")),
    Registration(setting_case<3>("capture_global_other_exchanged")),
    Registration(setting_case<4>("capture_local_same")),
    Registration(setting_case<5>("capture_local_other")),
    Registration(setting_case<6>("capture_relaxed_same")),
    Registration(setting_case<7>("capture_relaxed_other")),
};

// The legacy stream is implicitly part of every capture on a blocking stream.
void run_legacy() {
  open_device();
  CUevent event = nullptr;
  PROBE_MUST(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (const bool blocking : {true, false}) {
    const CUstream capturing = create_stream(blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    PROBE_MUST(driver().cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstreamCaptureStatus status{};
    const CUresult asked = driver().cuStreamIsCapturing(nullptr, &status);
    const CUresult recorded = driver().cuEventRecord(event, nullptr);
    CUgraph graph = nullptr;
    const CUresult ended = driver().cuStreamEndCapture(capturing, &graph);
    const std::string prefix = blocking ? "capture.legacy.blocking." : "capture.legacy.non_blocking.";
    answer(prefix + "cuStreamIsCapturing", name_of(asked));
    answer(prefix + "cuEventRecord", name_of(recorded) + " / " + name_of(ended));
  }
}

const Registration legacy_case({"capture_legacy",
                                "the legacy stream while another stream captures",
                                15,
                                {{"capture.legacy.blocking.cuStreamIsCapturing", "capture_implicit"},
                                 {"capture.legacy.blocking.cuEventRecord", "capture_implicit / capture_invalidated"},
                                 {"capture.legacy.non_blocking.cuStreamIsCapturing", "ok"},
                                 {"capture.legacy.non_blocking.cuEventRecord", "ok / ok"}},
                                run_legacy});

}  // namespace
}  // namespace probe
