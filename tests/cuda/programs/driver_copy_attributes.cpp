// Copies whose attributes say when the source may be read: during the call, or at any time, and pageable memory can go
// through pinned chunks; in the order of the stream, and it is read when the stream comes there, not before. Alone and
// in batches, of which each copy has its own attributes, and one that is wrong is named.
// harness: stages=both
// harness: passes-on=source-order
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "../driver_program.hpp"

#if CUDA_VERSION >= 12080
namespace {

constexpr size_t kBytes = 1 << 20, kWords = kBytes / 4, kSmallBytes = 4096;

using CopyWithAttributes = CUresult(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream);
using CopyBatch = CUresult(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*, size_t, size_t*,
                           CUstream);

template <class Function>
Function* later(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

CUmemcpyAttributes reading(CUmemcpySrcAccessOrder order) {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = order;
  return attributes;
}

CUdeviceptr address_of(std::vector<unsigned>& words) { return reinterpret_cast<CUdeviceptr>(words.data()); }

// It takes its time: whoever reads at the call reads what was there before.
void fill_late(void* argument) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto& words = *static_cast<std::vector<unsigned>*>(argument);
  std::fill(words.begin(), words.end(), 2);
}

void to_device(CUstream stream, CUdeviceptr block) {
  auto* const copy = later<CopyWithAttributes>("cuMemcpyWithAttributesAsync");
  std::vector<unsigned> words(kWords, 1);
  CUmemcpyAttributes now = reading(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
  SHOW(copy(block, address_of(words), kBytes, &now, stream));
  std::fill(words.begin(), words.end(), 9);
  NEED(cuStreamSynchronize(stream));
  say("read during the call: %s", contents(block, kBytes).c_str());

  CUmemcpyAttributes any = reading(CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
  SHOW(copy(block, address_of(words), kBytes, &any, stream));
  NEED(cuStreamSynchronize(stream));
  say("read at any time: %s", contents(block, kBytes).c_str());

  CUmemcpyAttributes in_order = reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  NEED(cuLaunchHostFunc(stream, fill_late, &words));
  SHOW(copy(block, address_of(words), kBytes, &in_order, stream));
  NEED(cuStreamSynchronize(stream));
  say("read in order: %s", contents(block, kBytes).c_str());

  CUmemcpyAttributes wrong = reading(CU_MEMCPY_SRC_ACCESS_ORDER_INVALID);
  SHOW(copy(block, address_of(words), kBytes, &wrong, stream));
  SHOW(copy(block, address_of(words), kBytes, nullptr, stream));
}

void to_host(CUstream stream, CUdeviceptr block) {
  auto* const copy = later<CopyWithAttributes>("cuMemcpyWithAttributesAsync");
  NEED(cuMemsetD32(block, 5, kWords));
  NEED(cuCtxSynchronize());
  for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
                           CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}) {
    CUmemcpyAttributes attributes = reading(order);
    std::vector<unsigned> words(kWords, 0);
    SHOW(copy(address_of(words), block, kBytes, &attributes, stream));
    NEED(cuStreamSynchronize(stream));
    say("to the host: %s", describe(words).c_str());
  }
}

// What is before it in the stream waits for the program: only a call that may return before its source was read leaves
// the program the time to answer.
struct Answer {
  std::atomic<bool> given{false}, came{false};
};
void wait_for(void* argument) {
  auto& answer = *static_cast<Answer*>(argument);
  for (int wait = 0; wait < 1000 && !answer.given; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  answer.came = answer.given.load();
}
void to_host_behind_the_program(CUstream stream, CUdeviceptr block) {
  auto* const copy = later<CopyWithAttributes>("cuMemcpyWithAttributesAsync");
  for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_ANY, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}) {
    CUmemcpyAttributes attributes = reading(order);
    std::vector<unsigned> words(kWords, 0);
    Answer answer;
    NEED(cuLaunchHostFunc(stream, wait_for, &answer));
    NEED(copy(address_of(words), block, kBytes, &attributes, stream));
    answer.given = true;
    NEED(cuStreamSynchronize(stream));
    say("the answer came in time: %s; %s", yes_no(answer.came), describe(words).c_str());
  }
}

// Big and small, of each order, and between devices: all in one call.
void in_a_batch(CUstream stream) {
  std::vector<unsigned> now(kWords, 1), late(kWords, 1), small(kSmallBytes / 4, 3), back(kWords, 0), again(kWords, 4);
  CUdeviceptr blocks[5];
  for (CUdeviceptr& block : blocks) NEED(cuMemsetD32(block = device_block(kBytes), 7, kWords));
  NEED(cuCtxSynchronize());
  CUdeviceptr to[] = {blocks[0], blocks[1], blocks[2], blocks[2] + kSmallBytes, address_of(back), blocks[4]};
  CUdeviceptr from[] = {address_of(now), address_of(late), address_of(small), blocks[3], blocks[3], address_of(again)};
  size_t sizes[] = {kBytes, kBytes, kSmallBytes, kSmallBytes, kBytes, kBytes};
  CUmemcpyAttributes attributes[] = {reading(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
                                     reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                     reading(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)};
  size_t firsts[] = {0, 1, 4};
  NEED(cuLaunchHostFunc(stream, fill_late, &late));
  SHOW(cuMemcpyBatchAsync(to, from, sizes, 6, attributes, firsts, 3, stream));
  std::fill(now.begin(), now.end(), 9);
  std::fill(again.begin(), again.end(), 9);
  NEED(cuStreamSynchronize(stream));
  say("now %s, late %s, small %s", contents(blocks[0], kBytes).c_str(), contents(blocks[1], kBytes).c_str(),
      contents(blocks[2], kSmallBytes).c_str());
  say("between devices %s, to the host %s, again %s", contents(blocks[2] + kSmallBytes, kSmallBytes).c_str(),
      describe(back).c_str(), contents(blocks[4], kBytes).c_str());
  say("its arrays are as they were: %s", yes_no(to[5] == blocks[4] && sizes[2] == kSmallBytes && firsts[2] == 4));
  for (CUdeviceptr block : blocks) NEED(cuMemFree(block));
}

void wrong_batches(CUstream stream, CUdeviceptr block) {
  auto* const copy = later<CopyBatch>("cuMemcpyBatchAsync");
  std::vector<unsigned> words(kWords, 6), small(kSmallBytes / 4, 3);
  CUdeviceptr to[] = {block, block + kBytes / 2, block};
  CUdeviceptr from[] = {address_of(words), address_of(small), address_of(small)};
  size_t sizes[] = {kBytes / 2, kSmallBytes, 0};
  CUmemcpyAttributes attributes[] = {reading(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
                                     reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
  size_t firsts[] = {0, 1}, failed = 77;
  SHOW(copy(to, from, sizes, 3, attributes, firsts, 2, &failed, stream));
  say("it was the copy %zu", failed);
  size_t not_ascending[] = {0, 0}, not_from_0[] = {1, 2};
  SHOW(copy(to, from, sizes, 2, attributes, not_ascending, 2, &failed, stream));
  SHOW(copy(to, from, sizes, 2, attributes, not_from_0, 2, &failed, stream));
  SHOW(copy(to, from, sizes, 1, attributes, firsts, 2, &failed, stream));
  SHOW(copy(to, from, sizes, 2, nullptr, firsts, 2, &failed, stream));
  SHOW(copy(to, from, sizes, 0, attributes, firsts, 1, &failed, stream));
  SHOW(copy(to, from, sizes, 2, attributes, firsts, 2, &failed, CU_STREAM_LEGACY));
  SHOW(copy(to, from, sizes, 2, attributes, firsts, 2, &failed, stream));
  NEED(cuStreamSynchronize(stream));
  say("at last: %s", contents(block, kBytes / 2).c_str());
}

}  // namespace

int main() {
  primary_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr block = device_block(kBytes);
  const bool one_at_a_time = later<CopyWithAttributes>("cuMemcpyWithAttributesAsync");  // since CUDA 13.2
  say("a copy has attributes of its own: %s", yes_no(one_at_a_time));
  if (one_at_a_time) {
    to_device(stream, block);
    to_host(stream, block);
    to_host_behind_the_program(stream, block);
  }
  in_a_batch(stream);
  wrong_batches(stream, block);
  NEED(cuMemFree(block));
  NEED(cuStreamDestroy(stream));
  return finish();
}
#else
int main() { return finish(); }
#endif
