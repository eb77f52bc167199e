// One case of copies that may be held back (CISTERN_GATHER), by name; judged by gather.py.
#include <sys/wait.h>
#include <unistd.h>

#include "driver_program.hpp"
#include "staging.hpp"

constexpr size_t kSlice = 3072;

// Looked up before any copy: to open a library is to send what is held.
static long long host_copies() {
  static const auto get = reinterpret_cast<long long (*)(const char*)>(simcuda_function("simcuda_get"));
  return get("host_copies");
}

static void copy(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  NEED(cuMemcpyHtoDAsync(to, from, bytes, stream));
}

// The number of driver copies for many neighbours.
static void many(CUstream stream) {
  constexpr size_t kSlices = 26677;
  const std::vector<unsigned char> whole = pattern(kSlice * kSlices, 1);
  const CUdeviceptr block = device_block(whole.size());
  const long long before = host_copies();
  for (size_t i = 0; i < kSlices; ++i) copy(block + i * kSlice, whole.data() + i * kSlice, kSlice, stream);
  NEED(cuStreamSynchronize(stream));
  say("driver copies: %lld", host_copies() - before);
  std::vector<unsigned char> back(whole.size());
  NEED(cuMemcpyDtoH(back.data(), block, back.size()));
  say("right: %s", yes_no(back == whole));
}

// The driver refuses a copy: some call of the program's says so, once.
static void refused(CUstream stream) {
  const unsigned word = 5;
  const CUdeviceptr block = device_block(4096);
  simcuda_set_value("fail_at:cuMemcpyHtoDAsync_v2", 1);
  const CUresult of_copy = cuMemcpyHtoDAsync(block, &word, sizeof word, stream);
  void* pinned = nullptr;
  const CUresult of_allocation = cuMemHostAlloc(&pinned, 4096, 0);
  const CUresult of_wait = cuStreamSynchronize(stream);
  say("errors: copy %d, allocation %d, wait %d", of_copy != CUDA_SUCCESS, of_allocation, of_wait != CUDA_SUCCESS);
  say("then: %s", name_of(cuStreamSynchronize(stream)));
  if (!of_allocation) NEED(cuMemFreeHost(pinned));
}

// The parent's copies are sent before the fork; the child, which has none, ends without a call.
static void forks(CUstream stream) {
  const unsigned word = 7;
  const CUdeviceptr block = device_block(4096);
  const long long before = host_copies();
  copy(block, &word, sizeof word, stream);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(host_copies() - before == 1 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  say("before the fork: %s", yes_no(status == 0));
}

// Whether a copy reaches the device without any further call, as a program that polls memory needs it.
static void polls(CUstream stream) {
  const CUdeviceptr block = device_block(4096);
  const unsigned word = 9;
  NEED(cuStreamSynchronize(stream));
  const long long before = host_copies();
  copy(block, &word, sizeof word, stream);
  usleep(200000);
  say("arrives without a further call: %s", yes_no(host_copies() > before));
  NEED(cuStreamSynchronize(stream));
  say("arrives by then: %s", yes_no(host_copies() > before));
}

// A function that has no hook, by cuGetProcAddress: what is held is sent before it.
static void looked_up(CUstream stream) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  NEED(cuGetProcAddress("cuProfilerStart", &function, 12000, 0, &status));
  const CUdeviceptr block = device_block(4096);
  const unsigned word = 11;
  const long long before = host_copies();
  copy(block, &word, sizeof word, stream);
  const long long held = host_copies() - before;
  if (function) reinterpret_cast<CUresult (*)()>(function)();
  say("copies before the call: %lld, after it: %lld", held, host_copies() - before);
}

// The same by dlsym: no copy is held from then on.
static void by_dlsym(CUstream stream) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  say("found: %s", yes_no(dlsym(driver, "cuProfilerStart") != nullptr));
  const CUdeviceptr block = device_block(4096);
  const unsigned word = 13;
  const long long before = host_copies();
  copy(block, &word, sizeof word, stream);
  say("copies: %lld", host_copies() - before);
}

static long long copies_at_once(CUstream stream) {
  const CUdeviceptr block = device_block(4096);
  const unsigned word = 17;
  const long long before = host_copies();
  copy(block, &word, sizeof word, stream);
  return host_copies() - before;
}

// A library that finds the driver before it finds Cistern.
static void deep_binding(CUstream stream) {
  host_copies();
  say("opened: %s", yes_no(dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != nullptr));
  say("copies: %lld", copies_at_once(stream));
}

// A table of unknown functions. The runtime's own tables are known.
static void export_table(CUstream stream) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  NEED(cuGetProcAddress("cuGetExportTable", &function, 12000, 0, &status));
  const auto get_table = reinterpret_cast<CUresult (*)(const void**, const CUuuid*)>(function);
  constexpr char kOfContexts[] = "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9";
  CUuuid of_contexts{}, unknown{};
  memcpy(&of_contexts, kOfContexts, sizeof of_contexts);
  const void* table = nullptr;
  get_table(&table, &of_contexts);
  say("copies after a table of the runtime's: %lld", copies_at_once(stream));
  get_table(&table, &unknown);
  say("after another one: %lld", copies_at_once(stream));
}

// The call of a copy of Cistern that is linked into the program.
static void linked(CUstream stream) {
  host_copies();
  reinterpret_cast<const void* (*)()>(dlsym(RTLD_DEFAULT, "cistern_interface"))();
  say("copies: %lld", copies_at_once(stream));
}

// Ends without a wait for its copy.
static void ends(CUstream stream) {
  const unsigned word = 15;
  copy(device_block(4096), &word, sizeof word, stream);
}

int main(int, char** arguments) {
  primary_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const std::string name = arguments[1];
  using Case = void (*)(CUstream);
  const std::pair<const char*, Case> cases[] = {{"many", many},
                                                {"refused", refused},
                                                {"forks", forks},
                                                {"polls", polls},
                                                {"looked_up", looked_up},
                                                {"by_dlsym", by_dlsym},
                                                {"ends", ends},
                                                {"linked", linked},
                                                {"deep_binding", deep_binding},
                                                {"export_table", export_table}};
  for (const auto& [known, run] : cases)
    if (name == known) run(stream);
  return 0;
}
