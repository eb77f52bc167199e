// What old_system.cpp opens and closes: it allocates and throws, so that call stacks and exceptions lead through it.
// The one that starts a thread waits in its constructor, under the loader's lock, for that thread to have allocated.
#include <pthread.h>
#include <stdlib.h>

#include <stdexcept>

extern "C" {
__attribute__((noinline)) void* plugin_allocates(std::size_t bytes) {
  void* volatile block = malloc(bytes);
  return block;
}
__attribute__((noinline)) void plugin_throws(int number) { throw std::runtime_error(number ? "plugin" : "nothing"); }
__attribute__((noinline)) void* leaked_in_plugin() {
  void* volatile block = plugin_allocates(77'777);
  return block;
}
}

#ifdef STARTS_THREAD
namespace {
void* allocate(void*) {
  for (int i = 1; i < 200; ++i) free(plugin_allocates(static_cast<std::size_t>(i) * 16));
  return nullptr;
}
struct Starts {
  Starts() {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, allocate, nullptr) == 0) pthread_join(thread, nullptr);
  }
} starts;
}  // namespace
#endif
