// Contexts: what a stream, an event or an allocation belongs to, and what a fault destroys.
#pragma once
#include <atomic>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {

// Never deleted: a handle may be used after its context is gone, and must be recognised then.
struct Context {
  Device* device = nullptr;
  bool primary = false;
  int attached = 0;  // by cuCtxAttach, besides the reference of who made it
  std::atomic<bool> alive{false};
  unsigned flags = 0;
  uint64_t id = 0;
  // [documented] After an exception on the device every call in the context answers this, until it is destroyed.
  // That holds for every other context on the device too, and no new one can be made. [measured: 580 on an H100]
  std::atomic<CUresult> sticky{CUDA_SUCCESS};

  StreamPointer legacy;
  std::unordered_map<uint64_t, StreamPointer> per_thread;
  std::vector<StreamPointer> retired;  // destroyed, or of an ended thread, with work left
  std::unordered_set<StreamPointer> created;
  std::unordered_set<Context*> peers;
  // Green contexts are parts of a primary context.
  Context* part_of = nullptr;
  std::unordered_set<Context*> parts;
  std::unordered_map<int, size_t> limits;  // those that the program has set
  std::unordered_map<int, std::shared_ptr<void>> limit_memory;

  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
};

// The current context, if it is alive; else the error that a call needing one answers.
Context* current_context(CUresult& result);
Context* find_context(Locked&, CUcontext handle);
Device* find_device(CUdevice ordinal);

// Counts a reference to the device's primary context, which the first one starts and the last one ends.
CUresult retain_primary(Locked&, Device& device);
void release_primary(Locked& lock, Device& device);

// Makes it usable: its legacy stream, its identity. The device's error where that is lost.
CUresult start_context(Locked&, Context& context, Device& device, unsigned flags);
// Waits for its work, then frees its memory, streams and events. The handle stays known as dead.
void end_context(Locked& lock, Context& context);

}  // namespace simcuda
