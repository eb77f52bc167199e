// What a refused entry point does: it is a call like any other (counted, answered early), then it is refused.
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"

namespace simcuda {
namespace {

EntryPoint& entry_point_named(const char* name) {
  static std::mutex& lock = *new std::mutex;
  static auto& made = *new std::unordered_map<const char*, EntryPoint*>;
  const std::lock_guard<std::mutex> guard(lock);
  EntryPoint*& entry = made[name];
  if (!entry) entry = new EntryPoint(name, kContextless);
  return *entry;
}

}  // namespace
}  // namespace simcuda

extern "C" __attribute__((visibility("hidden"))) int simcuda_refused_entry_point(const char* name) {
  simcuda::Call call(simcuda::entry_point_named(name));
  return call.early != CUDA_SUCCESS ? call.early : simcuda::refuse(name);
}
