// The library in programs that use CUDA's runtime: each case is a process whose first call of CUDA is in it. The driver
// and the runtime are the simulated ones. The same cases run in a plugin (runtime_native_plugin), whose copy of the
// library is the second one of the process.
#include "tests/library/runtime_native.hpp"

#include <cistern/plugins.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cistern/cistern.hpp>
#include <cistern/cuda_resource.hpp>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/simcuda.h"

namespace {

constexpr std::size_t kBytes = 3 << 20;
std::atomic<int> failures{0};

void check(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s (native %d)\n", what, cistern_native_error());
  ++failures;
}
void check(cistern_status status, const char* what) { check(status == CISTERN_OK, what); }

template <class Function>
Function* function_of_driver(Function*, const char* name) {
  return reinterpret_cast<Function*>(simcuda_function(name));
}
#define DRIVER(name) function_of_driver(static_cast<decltype(::name)*>(nullptr), #name)
#define DRIVER_V2(name) function_of_driver(static_cast<decltype(::name)*>(nullptr), #name "_v2")

CUcontext current() {
  CUcontext context = nullptr;
  DRIVER(cuCtxGetCurrent)(&context);
  return context;
}
int device_of(const void* pointer) {
  int ordinal = -1;
  DRIVER(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reinterpret_cast<CUdeviceptr>(pointer));
  return ordinal;
}
bool is_usable(const void* pointer, std::size_t bytes) {
  return DRIVER_V2(cuMemsetD8)(reinterpret_cast<CUdeviceptr>(pointer), 7, bytes) == CUDA_SUCCESS;
}

cistern::pool pool_of(cistern_kind kind, cistern_pool_memory memory = CISTERN_WHOLE_BLOCKS,
                      int device = CISTERN_CURRENT) {
  cistern::pool_settings of{.name = "native", .kind = kind, .memory = memory};
  if (device != CISTERN_CURRENT) of.where = CISTERN_ON_DEVICE, of.device = device;
  return cistern::pool::make(of).value();
}

// Every way to memory of the current context.
void all_serve(const char* who) {
  const auto use = [&](auto&& resource) {
    void* const block = resource.allocate(kBytes);
    check(is_usable(block, kBytes), who);
    resource.deallocate(block, kBytes);
    void* const ordered = resource.allocate(static_cast<CUstream_st*>(nullptr), kBytes);
    check(is_usable(ordered, kBytes), who);
    resource.deallocate(static_cast<CUstream_st*>(nullptr), ordered, kBytes);
  };
  use(cistern::device_resource());
  use(cistern::device_resource(CISTERN_WHOLE_BLOCKS));
  use(cistern::pinned_resource());
  use(cistern::managed_resource());
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS}) {
    const cistern::pool own = pool_of(CISTERN_DEVICE, memory);
    use(cistern::device_resource(own));
  }
  unsigned long long pointer = 0;
  check(cistern_cuda_allocate(kBytes, &pointer), who);
  check(cistern_cuda_deallocate(pointer), who);
  auto buffer = cistern::buffer<int>::make(1000, cistern::on_device(CISTERN_CURRENT));
  check(buffer.status(), who);
  check(buffer->fill(1).status(), who);
  auto unified = cistern::unified_buffer<int>::make(1000, cistern::on_device(CISTERN_CURRENT));
  check(unified.status(), who);
  check(unified->device_mut().status(), who);
}

void in_thread(const std::function<void()>& work) { std::thread(work).join(); }

// --- The process's first call
void nothing_is_loaded_for_other_calls() {
  std::size_t returned = 0;
  check(cistern_trim(CISTERN_DEVICE, 0, &returned), "trim");
  auto figures = cistern::sized<cistern_figures>();
  check(cistern_get_figures(CISTERN_DEVICE, -1, &figures), "figures");
  check(pool_of(CISTERN_DEVICE).statistics().live_blocks == 0, "a pool that is not used");
  check(cistern_cuda_deallocate(42) == CISTERN_NO_DRIVER, "what no driver gave");
  check(cistern_deallocate(cistern_allocate(100, 16)), "host memory");
  check(!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "no driver is loaded");
}
void devices_are_counted() {
  int count = 0;
  check(cistern_device_count(&count), "count");
  check(count == 2, "both devices");
  check(!current(), "no context was made");
}
void a_pool_is_served_first() {
  const cistern::pool own = pool_of(CISTERN_DEVICE, CISTERN_WHOLE_BLOCKS, 1);
  void* const block = own.allocate(kBytes).value();
  check(device_of(block) == 1, "on the device that was named");
  check(!current(), "a named device is not made current");
  check(own.deallocate(block).status(), "back");
}
void resources_are_served_first() {
  all_serve("the first call");
  void* pointer = nullptr;
  const CUcontext before = current();
  check(cudaMalloc(&pointer, kBytes) == cudaSuccess && cudaFree(pointer) == cudaSuccess, "the runtime afterwards");
  check(before && current() == before, "the runtime takes the same context");
}

// --- Threads
void fresh_threads_are_served() {
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  const CUcontext of_runtime = current();
  in_thread([&] {
    all_serve("a fresh thread");
    check(current() == of_runtime, "it has the runtime's context");
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i)
    threads.emplace_back([i] {
      if (i % 2) cudaSetDevice(1);
      const cistern::device_resource memory;
      for (int round = 0; round < 20; ++round) {
        void* const block = memory.allocate(static_cast<CUstream_st*>(nullptr), 1000 + i);
        check(device_of(block) == i % 2, "on the thread's device");
        memory.deallocate(static_cast<CUstream_st*>(nullptr), block, 1000 + i);
      }
    });
  for (std::thread& thread : threads) thread.join();
}
// A block comes back in a thread without a context.
void fresh_threads_give_back() {
  unsigned long long pointer = 0;
  const cistern::pool whole = pool_of(CISTERN_DEVICE), cut = pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS);
  check(cistern_cuda_allocate(kBytes, &pointer), "of the process");
  void *const a = whole.allocate(kBytes).value(), *const b = cut.allocate(kBytes).value();
  in_thread([&] { check(cistern_cuda_deallocate(pointer), "back elsewhere"); });
  in_thread([&] { check(whole.deallocate(a).status(), "whole, back elsewhere"); });
  in_thread([&] { check(cut.deallocate(b).status(), "cut, back elsewhere"); });
}
// Streams are asked about with their context current.
void fresh_threads_use_streams() {
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  CUstream stream = nullptr;
  DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
  const cistern::pool whole = pool_of(CISTERN_DEVICE, CISTERN_WHOLE_BLOCKS, 0),
                      cut = pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS, 0);
  in_thread([&] {
    for (CUstream on : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stream})
      for (const cistern::pool* pool : {&whole, &cut}) {
        long long made = 0;
        for (int round = 0; round < 10; ++round) {
          if (round == 1) made = simcuda_value("allocs");
          void* block = nullptr;
          check(cistern_pool_allocate_on(pool->get(), kBytes, CISTERN_CURRENT, on, &block), "take");
          check(cistern_pool_deallocate_on(pool->get(), block, on), "give");
        }
        check(simcuda_value("allocs") == made, "it is reused");
      }
    check(!current(), "no context was made current");
  });
}
void the_runtimes_device_is_followed() {
  check(cudaSetDevice(1) == cudaSuccess, "cudaSetDevice");
  const cistern::device_resource memory(CISTERN_WHOLE_BLOCKS);
  void* block = memory.allocate(kBytes);
  check(device_of(block) == 1, "on the chosen device");
  memory.deallocate(block, kBytes);
  DRIVER(cuCtxSetCurrent)(nullptr);  // as with a runtime before CUDA 12, which makes none current yet
  block = memory.allocate(kBytes);
  check(device_of(block) == 1, "without a context too");
  memory.deallocate(block, kBytes);
  check(cudaSetDevice(0) == cudaSuccess, "cudaSetDevice");
  block = memory.allocate(kBytes);
  check(device_of(block) == 0, "and back");
  memory.deallocate(block, kBytes);
}

// --- Contexts that end
void resets_are_followed(bool runtime_goes_on) {
  all_serve("before the reset");
  const cistern::pool named = pool_of(CISTERN_DEVICE, CISTERN_WHOLE_BLOCKS, 0),
                      cut = pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS), whole = pool_of(CISTERN_DEVICE);
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> held, freed;
    for (const cistern::pool* pool : {&named, &cut, &whole}) {
      held.push_back(pool->allocate(kBytes).value());
      freed.push_back(pool->allocate(kBytes / 2).value());
    }
    const cistern::pool* const pools[] = {&named, &cut, &whole};
    for (int i = 0; i < 3; ++i) check(pools[i]->deallocate(freed[i]).status(), "kept for reuse");
    check(cudaDeviceReset() == cudaSuccess, "cudaDeviceReset");
    check(simcuda_value("live_bytes") == 0, "the memory is gone");
    void* of_runtime = nullptr;
    if (runtime_goes_on) check(cudaMalloc(&of_runtime, kBytes) == cudaSuccess, "the runtime goes on");
    std::vector<unsigned long long> own(8);  // some lie where blocks went with the context
    for (unsigned long long& pointer : own) check(cistern_cuda_allocate(kBytes, &pointer), "memory after the reset");
    for (const unsigned long long pointer : own) check(cistern_cuda_deallocate(pointer), "and back");
    for (const cistern::pool* pool : pools) {
      const auto made = pool->allocate(kBytes / 2);
      void* const block = made ? *made : nullptr;
      check(block && is_usable(block, kBytes / 2), "memory after the reset");
      check(pool->deallocate(block).status(), "and back");
    }
    // The runtime may have the addresses by now.
    for (int i = 0; i < 3 && !runtime_goes_on; ++i)
      check(pools[i]->deallocate(held[i]).status() != CISTERN_OK, "what went is no block");
    all_serve("after the reset");
    if (of_runtime) cudaFree(of_runtime);
  }
}
void contexts_made_by_hand_are_used() {
  DRIVER(cuInit)(0);
  for (int round = 0; round < 5; ++round) {
    using Create = CUresult(CUcontext*, unsigned, CUdevice);
    CUcontext own = nullptr;
    check(function_of_driver(static_cast<Create*>(nullptr), "cuCtxCreate_v2")(&own, 0, 1) == CUDA_SUCCESS, "create");
    all_serve("in a context of one's own");
    check(current() == own, "it stays current");
    const cistern::pool pool = pool_of(CISTERN_DEVICE);
    void* block = pool.allocate(kBytes).value();
    check(device_of(block) == 1, "of its device");
    check(pool.deallocate(block).status(), "back");
    check(DRIVER_V2(cuCtxDestroy)(own) == CUDA_SUCCESS, "destroy");
    const auto next = pool.allocate(kBytes);
    block = next ? *next : nullptr;
    check(block && is_usable(block, kBytes) && device_of(block) == 0, "then the first device's primary one");
    check(pool.deallocate(block).status(), "back");
    DRIVER(cuCtxSetCurrent)(nullptr);
  }
}

// --- Forks
void forked(const std::function<void()>& child) {
  std::fflush(stdout);
  const pid_t id = fork();
  if (!id) {
    alarm(30);
    child();
    std::fflush(stdout);
    _exit(failures.load() != 0);
  }
  int status = 0;
  waitpid(id, &status, 0);
  check(status == 0, "the child");
}
void children_of_users_get_the_drivers_answer() {
  all_serve("the parent");
  const cistern::pool pool = pool_of(CISTERN_DEVICE), named = pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS, 0);
  forked([&] {
    unsigned long long pointer = 0;
    const auto refused = [](cistern_status status, const char* what) {
      check(status == CISTERN_DRIVER && cistern_native_error() == CUDA_ERROR_NOT_INITIALIZED, what);
    };
    refused(cistern_cuda_allocate(kBytes, &pointer), "cistern_cuda_allocate");
    refused(pool.allocate(kBytes).status(), "a pool of the current context");
    refused(named.allocate(kBytes).status(), "a pool of a device");
    char here = 0;
    refused(cistern_copy(&here, &here, 1, 0, nullptr), "a copy");
  });
  all_serve("the parent again");
}
void children_before_the_first_call_are_served() {
  forked([] { all_serve("the child"); });
  all_serve("the parent");
  check(cistern_cuda_deallocate(0) == CISTERN_OK, "nothing");
}

// --- Drivers that refuse
template <class Each>
void each_call(Each each) {
  unsigned long long pointer = 1;
  int count = 1;
  char here = 0;
  each(cistern_device_count(&count));
  check(!count, "no device");
  each(cistern_cuda_allocate(kBytes, &pointer));
  check(!pointer, "no memory");
  each(pool_of(CISTERN_DEVICE).allocate(kBytes).status());
  each(pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS).allocate(kBytes).status());
  each(pool_of(CISTERN_PINNED).allocate(kBytes).status());
  each(pool_of(CISTERN_DEVICE, CISTERN_WHOLE_BLOCKS, 0).allocate(kBytes).status());
  each(cistern_copy(&here, &here, 1, 0, nullptr));
}
void a_driver_without_devices_says_so() {
  each_call([](cistern_status status) {
    check(status == CISTERN_NO_DRIVER && cistern_native_error() == CUDA_ERROR_NO_DEVICE, "no device");
  });
}
void no_driver_is_said() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) return;
  each_call(
      [](cistern_status status) { check(status == CISTERN_NO_DRIVER && cistern_native_error() == 0, "no driver"); });
}
// Started with SIMCUDA_EACH=fail_every:cuDevicePrimaryCtxRetain=1: the device refuses contexts.
void a_prohibited_device_says_so() {
  const auto refused = [](cistern_status status) {
    check(status == CISTERN_DRIVER && cistern_native_error() == CUDA_ERROR_DEVICE_UNAVAILABLE, "unavailable");
  };
  unsigned long long pointer = 0;
  refused(cistern_cuda_allocate(kBytes, &pointer));
  refused(pool_of(CISTERN_DEVICE).allocate(kBytes).status());
  refused(pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS).allocate(kBytes).status());
  refused(pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS, 1).allocate(kBytes).status());
  check(!current(), "no context was made");
}
// A call that fails, wherever that is, returns a status, and the next one is served.
void failing_calls_leave_nothing_behind() {
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  for (const bool resets : {false, true})
    for (int every = 1; every <= 40; ++every) {
      if (resets) cudaDeviceReset();
      in_thread([&] {
        const cistern::pool whole = pool_of(CISTERN_DEVICE), cut = pool_of(CISTERN_DEVICE, CISTERN_SEGMENTS);
        simcuda_set_value("fail_every", every);
        void *a = nullptr, *b = nullptr;
        cistern_pool_allocate(whole.get(), kBytes, 0, &a);
        cistern_pool_allocate_on(cut.get(), kBytes, CISTERN_CURRENT, nullptr, &b);
        const cistern_status given_a = a ? cistern_pool_deallocate(whole.get(), a, nullptr) : CISTERN_OK;
        const cistern_status given_b = b ? cistern_pool_deallocate_on(cut.get(), b, nullptr) : CISTERN_OK;
        simcuda_set_value("fail_every", 0);
        if (given_a != CISTERN_OK) check(cistern_pool_deallocate(whole.get(), a, nullptr), "back after a failure");
        if (given_b != CISTERN_OK) check(cistern_pool_deallocate(cut.get(), b, nullptr), "cut, back after a failure");
        all_serve("after failures");
      });
    }
}

// --- Calls of the driver
struct Pair {
  const char* what;
  std::function<void*()> take;
  std::function<void(void*)> give;
  long long take_max, give_max;
};
void hits_make_few_calls() {
  const bool is_preloaded = getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libcistern");
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  CUstream stream = nullptr;
  DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
  std::vector<Pair> pairs;
  std::vector<cistern::pool> pools;
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS})
    for (const int device : {0, CISTERN_CURRENT}) pools.push_back(pool_of(CISTERN_DEVICE, memory, device));
  const auto plain = [](cistern_pool* pool) {
    void* block = nullptr;
    cistern_pool_allocate(pool, kBytes, 0, &block);
    return block;
  };
  for (const cistern::pool& pool : pools) {
    cistern_pool* const of = pool.get();
    // The pool is warm: a block is kept.
    for (CUstream on : {CUstream{}, CU_STREAM_LEGACY, stream}) {
      if (on == stream && !is_preloaded) continue;
      pairs.push_back({"in the order of a stream",
                       [=] {
                         void* block = nullptr;
                         cistern_pool_allocate_on(of, kBytes, CISTERN_CURRENT, on, &block);
                         return block;
                       },
                       [=](void* block) { check(cistern_pool_deallocate_on(of, block, on), "back"); }, 1, 1});
    }
    pairs.push_back({"and waited for", [=] { return plain(of); },
                     [=](void* block) { check(cistern_pool_deallocate(of, block, nullptr), "back"); }, 1, 3});
  }
  for (const Pair& pair : pairs) {
    long long taken = 0, given = 0;
    for (int round = 0; round < 10; ++round) {
      const long long before = simcuda_value("calls");
      void* const block = pair.take();
      const long long between = simcuda_value("calls");
      pair.give(block);
      taken = between - before, given = simcuda_value("calls") - between;
    }
    if (taken > pair.take_max || given > pair.give_max)
      std::printf("%s: %lld calls of the driver to take, %lld to give\n", pair.what, taken, given), ++failures;
  }
}

// --- Buffers that end
// A stream whose work lasts so long.
class BusyFor {
 public:
  explicit BusyFor(std::chrono::milliseconds time) {
    void* memory = nullptr;
    DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
    DRIVER(cuMemHostAlloc)(&memory, sizeof(std::uint32_t), 0);
    auto* const word = static_cast<std::atomic<std::uint32_t>*>(memory);
    word->store(0);
    DRIVER_V2(cuStreamWaitValue32)(stream, reinterpret_cast<CUdeviceptr>(memory), 1, CU_STREAM_WAIT_VALUE_GEQ);
    ends_ = std::thread([word, time] {
      std::this_thread::sleep_for(time);
      word->store(1);
    });
  }
  ~BusyFor() {
    ends_.join();
    DRIVER(cuStreamSynchronize)(stream);
  }
  CUstream stream = nullptr;

 private:
  std::thread ends_;
};

void ends_wait_for_nobody_else() {
  constexpr std::size_t kSize = 1 << 16;
  constexpr auto kLong = std::chrono::milliseconds(400);
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  CUstream stream = nullptr;
  DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
  const auto is_long = [&](auto use) {
    use();
    const BusyFor other(kLong);
    const auto begun = std::chrono::steady_clock::now();
    use();
    return std::chrono::steady_clock::now() - begun > kLong / 2;
  };
  const auto ends_on_stream = [&] {
    auto temporary = cistern::buffer<char>::make(kSize, cistern::on_device()).value();
    temporary.fill(1, stream).value();
    temporary.end_on(stream);
    check(temporary.empty() && !temporary.data(), "it has ended");
  };
  const auto is_unified = [&] { cistern::unified_buffer<char>::make(kSize).value().fill(1, stream).value(); };
  const auto names_no_stream = [&] {
    cistern::buffer<char>::make(kSize, cistern::on_device()).value().fill(1, stream).value();
  };
  check(!is_long(ends_on_stream), "a buffer that ends on a stream waits for no other");
  check(!is_long(is_unified), "a unified buffer waits for its own work");
  check(is_long(names_no_stream), "a buffer that names no stream waits for all");
  // Memory that a view keeps does not go back.
  auto kept = cistern::buffer<char>::make(kSize, cistern::on_device()).value();
  const cistern::view<char> view = kept.all();
  kept.end_on(stream);
  check(is_usable(view.data(), kSize), "the view keeps the memory");
}
void what_ends_on_a_stream_is_not_given_early() {
  check(cudaFree(nullptr) == cudaSuccess, "the runtime");
  for (int round = 0; round < 10; ++round) {
    auto first = cistern::buffer<char>::make(kBytes, cistern::on_device()).value();
    const char* const address = first.data();
    const BusyFor busy(std::chrono::milliseconds(20));
    first.fill(1, busy.stream).value();
    first.end_on(busy.stream);
    const auto next = cistern::buffer<char>::make(kBytes, cistern::on_device()).value();
    check(next.data() != address || DRIVER(cuStreamQuery)(busy.stream) == CUDA_SUCCESS, "another's work writes there");
  }
}

const std::map<std::string, std::function<void()>>& cases() {
  static const std::map<std::string, std::function<void()>> all{
      {"nothing_is_loaded_for_other_calls", nothing_is_loaded_for_other_calls},
      {"devices_are_counted", devices_are_counted},
      {"a_pool_is_served_first", a_pool_is_served_first},
      {"resources_are_served_first", resources_are_served_first},
      {"fresh_threads_are_served", fresh_threads_are_served},
      {"fresh_threads_give_back", fresh_threads_give_back},
      {"fresh_threads_use_streams", fresh_threads_use_streams},
      {"the_runtimes_device_is_followed", the_runtimes_device_is_followed},
      {"resets_are_followed", [] { resets_are_followed(false); }},
      {"resets_are_followed_by_the_runtime", [] { resets_are_followed(true); }},
      {"contexts_made_by_hand_are_used", contexts_made_by_hand_are_used},
      {"children_of_users_get_the_drivers_answer", children_of_users_get_the_drivers_answer},
      {"children_before_the_first_call_are_served", children_before_the_first_call_are_served},
      {"a_driver_without_devices_says_so", a_driver_without_devices_says_so},
      {"no_driver_is_said", no_driver_is_said},
      {"a_prohibited_device_says_so", a_prohibited_device_says_so},
      {"failing_calls_leave_nothing_behind", failing_calls_leave_nothing_behind},
      {"hits_make_few_calls", hits_make_few_calls},
      {"ends_wait_for_nobody_else", ends_wait_for_nobody_else},
      {"what_ends_on_a_stream_is_not_given_early", what_ends_on_a_stream_is_not_given_early},
  };
  return all;
}

}  // namespace

int run_runtime_native(const char* name) {
  const auto found = cases().find(name);
  if (found == cases().end()) return std::printf("FAILED: no case %s\n", name), 1;
  found->second();
  if (!failures) std::printf("all right\n");
  return failures != 0;
}
