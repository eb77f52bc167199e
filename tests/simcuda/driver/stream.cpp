// The workers of streams, and the order among streams.
#include "tests/simcuda/driver/stream.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

void delay_operation() {
  if (const long long delay = settings.stream_delay_us) std::this_thread::sleep_for(std::chrono::microseconds(delay));
}

// [assumed] After a sticky error nothing that was queued runs, but everything counts as done.
void run(const Stream& stream, Operation& operation) {
  for (const MarkerPointer& before : operation.after) before->wait();
  delay_operation();
  stop_at_teardown();
  if (stream.context->sticky == CUDA_SUCCESS || operation.bookkeeping) operation.work();
  operation.work = nullptr;  // what it holds is let go before anybody sees it done
  operation.done->complete();
}

void work_off(StreamPointer stream) {
  // What sleeps for a copy's time wakes up when it is over. Not by prctl(), which the library under test takes the
  // place of: it looks the real one up then, and that waits for a constructor which may be waiting for this thread.
  syscall(SYS_prctl, PR_SET_TIMERSLACK, 1, 0, 0, 0);
  for (;;) {
    std::unique_lock<std::mutex> guard(stream->queue_lock);
    stream->ready.wait(guard, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) return;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    guard.unlock();
    run(*stream, operation);
  }
}

void push(const StreamPointer& stream, Operation operation) {
  const std::lock_guard<std::mutex> guard(stream->queue_lock);
  stream->queue.push_back(std::move(operation));
  if (!stream->has_worker) {
    stream->has_worker = true;
    std::thread(work_off, stream).detach();
  }
  stream->ready.notify_one();
}

void add_unfinished(std::vector<MarkerPointer>& markers, const StreamPointer& stream) {
  if (stream && stream->last && !stream->last->done()) markers.push_back(stream->last);
}

template <typename Visit>
void for_each_stream(const Context& context, Visit visit) {
  visit(context.legacy);
  for (const auto& [thread, stream] : context.per_thread) visit(stream);
  for (const StreamPointer& stream : context.created) visit(stream);
  for (const StreamPointer& stream : context.retired) visit(stream);
}

StreamPointer per_thread_stream(Locked& lock, Context& context) {
  StreamPointer& stream = context.per_thread[this_thread().id];
  // [documented] The per-thread default stream is not a non-blocking one: it synchronises with the legacy stream.
  if (!stream) {
    stream = make_stream(lock, context, StreamKind::kPerThread, CU_STREAM_DEFAULT, 0);
    stream->thread = this_thread().id;
  }
  return stream;
}

// Runs in the calling thread what it would wait for anyway, when nothing comes before it.
void run_here(Locked& lock, const StreamPointer& stream, const Task& task) {
  const auto done = std::make_shared<Marker>();
  stream->last = done;
  note_in_flight(lock, task.touched, done);
  lock.unlock();
  delay_operation();
  run_task(task, *stream->context);
  done->complete();
  lock.lock();
}

}  // namespace

void stop_at_teardown() {
  while (process_state() == ProcessState::kTornDown) std::this_thread::sleep_for(std::chrono::seconds(1));
}

StreamPointer make_stream(Locked&, Context& context, StreamKind kind, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->kind = kind;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = ++driver().last_id;
  return stream;
}

void close_stream(Locked&, const StreamPointer& stream) {
  const std::lock_guard<std::mutex> guard(stream->queue_lock);
  stream->closing = true;
  stream->ready.notify_one();
}

void retire_stream(Locked& lock, const StreamPointer& stream) {
  auto& retired = stream->context->retired;
  std::erase_if(retired, [](const StreamPointer& other) { return other->last->done(); });
  if (stream->last && !stream->last->done()) retired.push_back(stream);
  close_stream(lock, stream);
}

// [measured] A driver follows the handle of a destroyed stream: the program mostly ends (580 on an H100: SIGSEGV).
CUresult error_of_unknown_stream(Locked&, CUstream handle) {
  if (driver().destroyed_streams.contains(handle)) {
    std::fputs("simcuda: a destroyed stream is used\n", stderr);
    std::abort();
  }
  return driver().detached_streams.contains(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

CUstream create_stream(Locked& lock, Context& context, unsigned flags, int priority) {
  const StreamPointer stream =
      make_stream(lock, context, StreamKind::kCreated, flags, std::clamp(priority, kGreatestPriority, 0));
  const auto handle = reinterpret_cast<CUstream>(stream.get());
  context.created.insert(stream);
  driver().streams.emplace(handle, stream);
  driver().detached_streams.erase(handle);
  driver().destroyed_streams.erase(handle);
  ++counters.live_streams;
  return handle;
}

StreamPointer find_stream(Locked& lock, CUstream handle, CUresult& result) {
  if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    const auto found = driver().streams.find(handle);
    result = found == driver().streams.end() ? error_of_unknown_stream(lock, handle) : CUDA_SUCCESS;
    return found == driver().streams.end() ? nullptr : found->second;
  }
  Context* context = current_context(result);
  if (!context) return nullptr;
  const bool per_thread = handle == CU_STREAM_PER_THREAD || (!handle && this_thread().stream_zero_is_per_thread);
  return per_thread ? per_thread_stream(lock, *context) : context->legacy;
}

// [documented] The legacy default stream waits for all blocking streams of its context, the per-thread ones among them,
// and these wait for it. Non-blocking streams are not ordered with it.
std::vector<MarkerPointer> unfinished_before(Locked&, const Stream& stream) {
  std::vector<MarkerPointer> markers;
  if (stream.last && !stream.last->done()) markers.push_back(stream.last);
  const Context& context = *stream.context;
  if (stream.kind == StreamKind::kLegacy) {
    for_each_stream(context, [&](const StreamPointer& other) {
      if (other->blocking()) add_unfinished(markers, other);
    });
  } else if (stream.blocking()) {
    add_unfinished(markers, context.legacy);
  }
  return markers;
}

std::vector<MarkerPointer> unfinished_in(Locked&, const Context& context) {
  std::vector<MarkerPointer> markers;
  for_each_stream(context, [&](const StreamPointer& stream) { add_unfinished(markers, stream); });
  // [documented] Waiting for a primary context waits for its green contexts too.
  for (const Context* part : context.parts)
    for_each_stream(*part, [&](const StreamPointer& stream) { add_unfinished(markers, stream); });
  return markers;
}

void wait_for(Locked& lock, const std::vector<MarkerPointer>& markers) {
  if (markers.empty()) return;
  lock.unlock();
  for (const MarkerPointer& marker : markers) marker->wait();
  lock.lock();
}

MarkerPointer queue_operation(Locked& lock, const StreamPointer& stream, std::function<void()> work,
                              std::vector<MarkerPointer> after, bool bookkeeping) {
  for (MarkerPointer& marker : unfinished_before(lock, *stream)) after.push_back(std::move(marker));
  stream->last = std::make_shared<Marker>();
  push(stream, {std::move(work), std::move(after), stream->last, bookkeeping});
  return stream->last;
}

CUresult enqueue(Locked& lock, const StreamPointer& stream, Task task, Wait wait) {
  // [documented] The legacy stream must not be used while a blocking stream of the context is being captured: that
  // would be an implicit dependency. The capture is invalidated.
  if (stream->kind == StreamKind::kLegacy && any_capture() && invalidate_blocking_captures(lock, *stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture) {
    task.context = stream->context;
    if (wait == Wait::kNo) return capture_task(lock, *stream, std::move(task));
    // [documented] What waits for a stream that is being captured invalidates the capture.
    invalidate(lock, *stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (wait == Wait::kYes && unfinished_before(lock, *stream).empty()) {
    run_here(lock, stream, task);
    return stream->context->sticky;
  }
  const std::vector<Touched> touched = task.touched;
  const MarkerPointer done =
      queue_operation(lock, stream, [task = std::move(task), context = stream->context] { run_task(task, *context); });
  note_in_flight(lock, touched, done);
  if (wait == Wait::kNo) return CUDA_SUCCESS;
  wait_for(lock, {done});
  return stream->context->sticky;
}

}  // namespace simcuda
