// The simulated driver's own tests: streams that wait for a word in memory, or write one.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simcuda/checks/driver_test_support.hpp"

namespace {

void expect_waiting(CUstream stream) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
}

TEST_F(Driver, AStreamWaitsForAValueThatAnotherWrites) {
  const CUdeviceptr memory = allocate(8);
  const CUfunction store = store_kernel();
  const CUstream one = stream(), two = stream();
  ASSERT_CU(cuMemsetD8(memory, 0, 8));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuStreamWaitValue32(one, memory, 7, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CU(launch_store(store, memory + 4, 1, one));
  ASSERT_CU(cuStreamWriteValue32(two, memory, 6, 0));
  ASSERT_CU(cuStreamSynchronize(two));
  expect_waiting(one);
  ASSERT_CU(launch_store(store, memory + 4, 2, two));
  ASSERT_CU(cuStreamWriteValue32(two, memory, 8, 0));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(1U, word_at(memory + 4)) << "the later kernel ran before the wait was over";
}

struct Condition {
  unsigned flags;
  cuuint64_t waits_at, goes_on_at;  // with the value 6
};

template <typename Word>
void expect_conditions(CUstream stream, CUdeviceptr memory, Word value, const Condition& condition,
                       CUresult (*wait)(CUstream, CUdeviceptr, Word, unsigned)) {
  std::atomic_ref<Word> word(*reinterpret_cast<Word*>(memory));
  word = static_cast<Word>(condition.waits_at);
  ASSERT_CU(wait(stream, memory, value, condition.flags));
  expect_waiting(stream);
  word = static_cast<Word>(condition.goes_on_at);
  EXPECT_CU(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

TEST_F(Driver, ConditionsOnValuesInPinnedMemory) {
  const CUstream one = stream();
  const auto memory = reinterpret_cast<CUdeviceptr>(pin(8));
  constexpr Condition kConditions[] = {{CU_STREAM_WAIT_VALUE_GEQ, 5, 6},
                                       {CU_STREAM_WAIT_VALUE_GEQ, ~cuuint64_t{0}, 7},
                                       {CU_STREAM_WAIT_VALUE_EQ, 7, 6},
                                       {CU_STREAM_WAIT_VALUE_AND, 1, 4},
                                       {CU_STREAM_WAIT_VALUE_NOR, ~cuuint64_t{6}, 8}};
  for (const Condition& condition : kConditions) {
    SCOPED_TRACE(condition.flags);
    expect_conditions<cuuint32_t>(one, memory, 6, condition, cuStreamWaitValue32);
    expect_conditions<cuuint64_t>(one, memory, 6, condition, cuStreamWaitValue64);
  }
  // Cyclic: 1 comes after the greatest number.
  *reinterpret_cast<unsigned*>(memory) = 1;
  ASSERT_CU(cuStreamWaitValue32(one, memory, ~0U, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CU(cuStreamWriteValue64(one, memory, cuuint64_t{1} << 40, 0));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(cuuint64_t{1} << 40, *reinterpret_cast<cuuint64_t*>(memory));
}

TEST_F(Driver, ValuesOnlyInMemoryOfTheDriver) {
  const CUstream one = stream();
  const CUdeviceptr memory = allocate(12);
  CUdeviceptr managed = 0;
  unsigned pageable = 0;
  ASSERT_CU(cuMemAllocManaged(&managed, 8, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(one, managed, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(one, managed, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(one, reinterpret_cast<CUdeviceptr>(&pageable), 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(one, memory + 2, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64(one, memory + 4, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(one, memory + 8, 0, 0)) << "it ends outside";
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(one, memory, 0, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(one, memory, 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32(one, memory, 0, CU_STREAM_WAIT_VALUE_FLUSH));
  ASSERT_CU(cuMemFree(managed));
}

TEST_F(Driver, ValuesInACaptureAreRefused) {
  const CUstream one = stream();
  const CUdeviceptr memory = allocate(4);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  testing::internal::CaptureStderr();
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32(one, memory, 0, 0));
  EXPECT_EQ("simcuda: cuStreamWaitValue32_v2 while its stream is captured is not simulated\n",
            testing::internal::GetCapturedStderr());
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_F(Driver, AFaultElsewhereEndsTheWaitForAValue) {
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 0));
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  const CUstream one = stream(), two = stream();
  ASSERT_CU(cuMemsetD8(memory, 0, 4));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuStreamWaitValue32(one, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
  simcuda_set("fault", 1);
  ASSERT_CU(launch_store(store, memory, 0, two));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(second));
}

}  // namespace
