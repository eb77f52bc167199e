// See objects.hpp.
#include "shim/cuda/objects.hpp"

namespace cistern::cuda {

void Objects::forget_those_of(const Context& context) {
  const std::uint32_t epoch = context.epoch.load();
  Vector<const void*> ended;
  all_.for_each([&](const void* handle, const ObjectRecord& record) {
    if (record.context == &context && record.epoch != epoch) ended.push_back(handle);
  });
  ObjectRecord gone;
  for (const void* handle : ended)
    all_.take_if(handle, gone, [&](const ObjectRecord& record) { return record.epoch != epoch; });
}

void Objects::move_those_of(const Context& context, Context& heir) {
  const std::uint32_t epoch = context.epoch.load();
  all_.for_each([&](const void*, ObjectRecord& record) {
    if (record.context != &context || record.epoch == epoch) return;
    record.context = &heir;
    record.epoch = heir.epoch.load();
  });
}

void Objects::before_fork() {
  all_.before_fork();
  streams_.before_fork();
  green_contexts_.before_fork();
}
void Objects::after_fork() {
  green_contexts_.after_fork();
  streams_.after_fork();
  all_.after_fork();
}

void Objects::forget_in_child() {
  all_.for_each([](const void*, ObjectRecord& record) { record.inherited = true; });
  for (Counter& created : created_) created = 0;
}

}  // namespace cistern::cuda
