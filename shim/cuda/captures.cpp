// See captures.hpp.
#include "shim/cuda/captures.hpp"

#include <stdint.h>

#include <algorithm>

#include "pool/base/system_call.hpp"

namespace cistern::cuda {
namespace {

constexpr int kModeGlobal = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local int interaction_mode = kModeGlobal;

int this_thread() { return static_cast<int>(system_call(SYS_gettid)); }

// The thread that a default stream belongs to; 0 for every other stream.
int owner_of(CUstream stream, bool per_thread) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  return handle == 2 || (handle == 0 && per_thread) ? this_thread() : 0;
}

}  // namespace

template <class Which>
void Captures::remove_if(Which which) {
  Locked hold(lock_);
  const auto gone = std::erase_if(captures_, which);
  gate_.captures.fetch_sub(static_cast<int>(gone), std::memory_order_release);
}

void Captures::begun(CUstream stream, bool per_thread, int mode, CUcontext context) {
  {
    Locked hold(lock_);
    captures_.push_back({stream, this_thread(), owner_of(stream, per_thread), mode, context});
    gate_.captures.fetch_add(1);
  }
  gate_.wait_until_empty();
}

// The last one that matches: a stream that captures already has another when a second begin was refused.
void Captures::ended(CUstream stream, bool per_thread) {
  const int owner = owner_of(stream, per_thread);
  Locked hold(lock_);
  for (std::size_t i = captures_.size(); i-- > 0;) {
    const Capture& capture = captures_[i];
    if (owner ? capture.owner != owner : capture.owner || capture.stream != stream) continue;
    captures_.erase(captures_.begin() + static_cast<std::ptrdiff_t>(i));
    gate_.captures.fetch_sub(1);
    return;
  }
}

bool Captures::capturing(CUstream stream, bool per_thread) {
  const int owner = owner_of(stream, per_thread);
  Locked hold(lock_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const Capture& c) { return owner ? c.owner == owner : !c.owner && c.stream == stream; });
}

void Captures::stream_gone(CUstream stream) {
  if (any()) remove_if([&](const Capture& c) { return !c.owner && c.stream == stream; });
}

void Captures::context_gone(CUcontext context) {
  if (any()) remove_if([&](const Capture& c) { return c.context == context; });
}

void Captures::mode_exchanged(int mode) { interaction_mode = mode; }

bool Captures::forbid_unsafe_calls_of_this_thread() {
  if (interaction_mode == kCaptureModeRelaxed) return false;
  const int self = this_thread();
  Locked hold(lock_);
  return std::any_of(captures_.begin(), captures_.end(), [&](const Capture& c) {
    if (c.thread == self) return c.mode != kCaptureModeRelaxed;
    return interaction_mode == kModeGlobal && c.mode == kModeGlobal;
  });
}

void Captures::forget_in_child() {
  captures_.clear();
  gate_.captures.store(0);
  gate_.inside.store(0);
}

}  // namespace cistern::cuda
