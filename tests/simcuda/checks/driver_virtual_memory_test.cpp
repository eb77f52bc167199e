// The simulated driver's own tests: virtual memory, what the driver says of it, and which devices may use it.
#include <fcntl.h>
#include <unistd.h>

#include "tests/simcuda/checks/virtual_memory_support.hpp"

namespace {

TEST_F(VirtualMemory, AddressesAreReservedInUnitsAndAlignedToPowersOfTwo) {
  CUdeviceptr address = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, kUnit + 4096, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, kUnit, 3 * kUnit, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, kUnit, 0, 100, 0));
  ASSERT_CU(cuMemAddressReserve(&address, kUnit, 64 * kUnit, 0, 0));
  EXPECT_EQ(0U, address % (64 * kUnit));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 2 * kUnit));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address + kUnit, kUnit));
  ASSERT_CU(cuMemAddressFree(address, kUnit));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, kUnit));
}

TEST_F(VirtualMemory, RefusesReservationsAboveTheLimit) {
  simcuda_set("vmm_reserve_max", static_cast<long long>(4 * kUnit));
  CUdeviceptr address = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&address, 5 * kUnit, 0, 0, 0));
  ASSERT_CU(cuMemAddressReserve(&address, 4 * kUnit, 0, 0, 0));
  ASSERT_CU(cuMemAddressFree(address, 4 * kUnit));
}

TEST_F(VirtualMemory, MemoryAndMappingsAreMultiplesOfTheMinimumGranularity) {
  simcuda_set("vmm_granularity", 64 << 10);
  size_t minimum = 0, recommended = 0;
  const CUmemAllocationProp wanted = on_device(0);
  ASSERT_CU(cuMemGetAllocationGranularity(&minimum, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  ASSERT_CU(cuMemGetAllocationGranularity(&recommended, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_EQ(size_t{64} << 10, minimum);
  EXPECT_EQ(kUnit, recommended);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, minimum / 2, &wanted, 0));
  ASSERT_CU(cuMemCreate(&handle, 2 * minimum, &wanted, 0));
  const CUdeviceptr address = reserve(kUnit);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + minimum / 2, 2 * minimum, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, minimum / 2, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 3 * minimum, 0, handle, 0)) << "more than there is";
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, minimum, minimum, handle, 0)) << "not from its start";
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + kUnit - minimum, 2 * minimum, 0, handle, 0)) << "beyond";
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, minimum, 0, handle, 0)) << "a part of it";
  ASSERT_CU(cuMemMap(address + minimum, 2 * minimum, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 2 * minimum, 0, handle, 0)) << "a part is mapped already";
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + minimum, minimum));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 3 * minimum)) << "where a part has no memory";
  ASSERT_CU(cuMemUnmap(address + minimum, 2 * minimum));
  EXPECT_CU(CUDA_SUCCESS, cuMemUnmap(address + minimum, 2 * minimum)) << "twice";
  ASSERT_CU(cuMemRelease(handle));
  ASSERT_CU(cuMemAddressFree(address, kUnit));
}

TEST_F(VirtualMemory, DescriptorsOfAddressRanges) {
  constexpr auto kDescriptor = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
  int descriptor = -1;
  const auto ask = [&](CUdeviceptr first, size_t bytes) {
    return cuMemGetHandleForAddressRange(&descriptor, first, bytes, kDescriptor, 0);
  };
  CUdeviceptr whole = 0;
  ASSERT_CU(cuMemAlloc(&whole, kUnit));
  const Mapped memory(2);
  for (const CUdeviceptr first : {whole, memory.address}) {
    ASSERT_CU(ask(first, kUnit));
    EXPECT_EQ(FD_CLOEXEC, fcntl(descriptor, F_GETFD));
    close(descriptor);
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask(first, 100));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask(first + 512, 4096));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask(whole, 2 * kUnit));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask(memory.address, 3 * kUnit)) << "a part is not mapped";
  ASSERT_CU(ask(memory.address, 2 * kUnit)) << "over two handles";
  close(descriptor);
  ASSERT_CU(cuMemFree(whole));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask(whole, kUnit));
}

TEST_F(VirtualMemory, ManyHandlesTakeNoDescriptors) {
  const int before = open_descriptors();
  const Mapped memory(300);
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(VirtualMemory, ReleasedMemoryIsPoisonedAtItsEndsAndDoesNotStayCommitted) {
  const size_t before = shared_kib();
  {
    const Mapped memory(32);
    ASSERT_CU(cuMemsetD8(memory.address, 0x11, memory.bytes()));
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_GT(shared_kib(), before + memory.bytes() / 1024 / 2);
  }
  EXPECT_LT(shared_kib(), before + 32 * 64);
  const Mapped again(32);
  EXPECT_EQ(0xDBDBDBDBU, word_at(again.address));
  EXPECT_EQ(0xDBDBDBDBU, word_at(again.address + kUnit - 4));
}

TEST_F(VirtualMemory, MemoryThatCountsAsFreeCanBeMade) {
  const size_t before = free_bytes();
  CUmemGenericAllocationHandle all = 0, one = 0;
  const CUmemAllocationProp wanted = on_device(0);
  ASSERT_CU(cuMemCreate(&all, before / kUnit * kUnit, &wanted, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&one, kUnit, &wanted, 0));
  ASSERT_CU(cuMemRelease(all));
  EXPECT_EQ(before, free_bytes());
  ASSERT_CU(cuMemCreate(&one, kUnit, &wanted, 0));
  ASSERT_CU(cuMemRelease(one));
}

TEST_F(VirtualMemory, OneMemoryAtTwoAddressesIsTheSame) {
  const Mapped memory(1);
  const CUdeviceptr second = reserve(kUnit);
  ASSERT_CU(cuMemMap(second, kUnit, 0, memory.handles[0], 0));
  allow(second, kUnit, {0});
  ASSERT_CU(cuMemsetD8(memory.address, 0x11, kUnit));
  EXPECT_EQ(0x11111111U, word_at(second + kUnit - 4));
  ASSERT_CU(cuMemUnmap(second, kUnit));
  ASSERT_CU(cuMemAddressFree(second, kUnit));
}

TEST_F(VirtualMemory, MemoryMovesBetweenAddressesWithItsContents) {
  const Mapped memory(2);
  ASSERT_CU(cuMemsetD8(memory.address + kUnit, 0x22, kUnit));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  ASSERT_CU(cuMemUnmap(memory.address + kUnit, kUnit));
  ASSERT_CU(cuMemMap(memory.address, kUnit, 0, memory.handles[1], 0));
  ASSERT_CU(cuMemMap(memory.address + kUnit, kUnit, 0, memory.handles[0], 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory.address, 1, 1)) << "a new mapping is closed";
  allow(memory.address, 2 * kUnit, {0});
  EXPECT_EQ(0x22222222U, word_at(memory.address));
}

TEST_F(VirtualMemory, TheHandleOfAnAddressIsTheOneThatMappedIt) {
  Mapped memory(1);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(memory.address + 5)));
  EXPECT_EQ(memory.handles[0], again);
  ASSERT_CU(cuMemRelease(again));
  ASSERT_CU(cuMemRelease(again));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemRelease(again));
  ASSERT_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(memory.address)));
  EXPECT_EQ(memory.handles[0], again) << "also when every reference was released";
  const CUdeviceptr other = allocate(100);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(other)));
  ASSERT_CU(cuMemFree(other));
}

TEST_F(VirtualMemory, AnAddressRangeIsOneHandleOrNotFound) {
  const Mapped memory(3);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_CU(cuMemGetAddressRange(&base, &bytes, memory.address + kUnit + 7));
  EXPECT_EQ(memory.address + kUnit, base);
  EXPECT_EQ(kUnit, bytes);
  simcuda_set("vmm_no_range", 1);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, memory.address));
  const CUdeviceptr other = allocate(100);
  EXPECT_CU(CUDA_SUCCESS, cuMemGetAddressRange(&base, &bytes, other));
  ASSERT_CU(cuMemFree(other));
}

TEST_F(VirtualMemory, OrdinaryFreesAndSharingRefuseIt) {
  const Mapped memory(1);
  CUipcMemHandle handle{};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory.address));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory.address, stream()));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, memory.address));
}

TEST_F(VirtualMemory, AttributesTellTheReservationAndTheMemory) {
  const Mapped memory(2, on_device(0));
  const CUdeviceptr inside = memory.address + kUnit + 100;
  EXPECT_EQ(memory.address, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT_EQ(memory.bytes(), attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  EXPECT_EQ(memory.address + kUnit, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
  EXPECT_EQ(kUnit, attribute<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(0, attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  EXPECT_TRUE(attribute<bool>(CU_POINTER_ATTRIBUTE_MAPPED, inside));
  EXPECT_FALSE(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  EXPECT_FALSE(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside));
  EXPECT_EQ(0U, attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  EXPECT_EQ(3U, attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside));
  EXPECT_EQ(memory.handles[1], attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, inside));
  CUcontext owner = context;
  ASSERT_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  EXPECT_EQ(nullptr, owner);
  owner = context;
  CUpointer_attribute of_context = CU_POINTER_ATTRIBUTE_CONTEXT;
  void* answers[] = {&owner};
  ASSERT_CU(cuPointerGetAttributes(1, &of_context, answers, inside));
  EXPECT_EQ(nullptr, owner);
  const unsigned on = 1;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
}

TEST_F(VirtualMemory, AttributesOfAReservedAddressWithoutMemory) {
  const CUdeviceptr address = reserve(4 * kUnit);
  unsigned long long value = 0;
  for (const CUpointer_attribute asked : {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                          CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE})
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&value, asked, address + kUnit));
  ASSERT_CU(cuMemAddressFree(address, 4 * kUnit));
}

TEST_F(VirtualMemory, OnlyMemoryMadeForRdmaCanDoIt) {
  EXPECT_EQ(1, device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
  CUmemAllocationProp wanted = on_device(0);
  wanted.allocFlags.gpuDirectRDMACapable = 1;
  {
    const Mapped memory(1, wanted);
    EXPECT_TRUE(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, memory.address));
    const unsigned on = 1;
    EXPECT_CU(CUDA_SUCCESS, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address));
    simcuda_set("rdma_access_fails", 1);
    EXPECT_CU(CUDA_ERROR_UNKNOWN, cuMemSetAccess(memory.address, kUnit, &kDeviceZero, 1));
  }
  const Mapped other(1);
  EXPECT_CU(CUDA_SUCCESS, cuMemSetAccess(other.address, kUnit, &kDeviceZero, 1));
  simcuda_set("rdma", 0);
  EXPECT_EQ(0, device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
}

TEST_F(VirtualMemory, AccessIsSetOverWholeMappingsForDevicesThatAreThere) {
  const Mapped memory(2);
  CUmemAccessDesc wanted = kDeviceZero;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(memory.address, kUnit / 2, &wanted, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(memory.address, 3 * kUnit, &wanted, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(memory.address, kUnit, &wanted, 0));
  wanted.location.id = 77;
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(memory.address, kUnit, &wanted, 1));
  wanted = kDeviceZero;
  wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  ASSERT_CU(cuMemSetAccess(memory.address, kUnit, &wanted, 1));
  unsigned long long flags = 0;
  ASSERT_CU(cuMemGetAccess(&flags, &wanted.location, memory.address));
  EXPECT_EQ(static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READ), flags);
  ASSERT_CU(cuMemGetAccess(&flags, &wanted.location, memory.address + kUnit));
  EXPECT_EQ(static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), flags);
  wanted.location.id = 1;
  ASSERT_CU(cuMemGetAccess(&flags, &wanted.location, memory.address));
  EXPECT_EQ(static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_NONE), flags);
}

TEST_F(VirtualMemory, ReadingIsNoWriting) {
  const Mapped memory(1);
  ASSERT_CU(cuMemsetD8(memory.address, 0x44, kUnit));
  ASSERT_CU(cuCtxSynchronize());
  CUmemAccessDesc reading = kDeviceZero;
  reading.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  ASSERT_CU(cuMemSetAccess(memory.address, kUnit, &reading, 1));
  EXPECT_EQ(0x44444444U, word_at(memory.address));
  ASSERT_CU(cuMemsetD8(memory.address, 1, 4));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(VirtualMemory, AnotherDeviceWithoutAccessFaultsWhateverItsPeerAccess) {
  const long long faults = simcuda_get("faults");
  const Mapped memory(1);
  InContext second(1);
  ASSERT_CU(cuCtxEnablePeerAccess(context, 0));
  ASSERT_CU(cuMemsetD8Async(memory.address, 7, kUnit, stream()));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8(memory.address, 7, kUnit)) << "sticky";
  EXPECT_EQ(faults + 1, simcuda_get("faults"));
}

TEST_F(VirtualMemory, AKernelThatGetsAnAddressWithoutAccessFaults) {
  const Mapped memory(1);
  InContext second(1);
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, stream()));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(VirtualMemory, AnotherDeviceWithAccessWorks) {
  const Mapped memory(1);
  allow(memory.address, kUnit, {1});
  InContext second(1);
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, stream()));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(7U, word_at(memory.address));
}

TEST_F(VirtualMemory, CopiesBetweenContextsUseTheAccessOfEach) {
  const Mapped memory(1);
  ASSERT_CU(cuMemsetD8(memory.address, 0x55, kUnit));
  ASSERT_CU(cuCtxSynchronize());
  InContext second(1);
  const CUdeviceptr other = allocate(kUnit);
  ASSERT_CU(cuMemcpyPeer(other, second.context, memory.address, context, kUnit));
  EXPECT_EQ(0x55555555U, word_at(other));
  ASSERT_CU(cuMemcpyDtoD(other, memory.address, kUnit));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize()) << "an ordinary copy is its stream's device's";
}

TEST_F(VirtualMemory, TheDeviceThatHasTheMemoryNeedsAccessToo) {
  InContext second(1);
  const size_t before = free_bytes();
  const Mapped memory(1, on_device(1));
  EXPECT_EQ(before - kUnit, free_bytes()) << "counted where it is";
  EXPECT_EQ(1, attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory.address));
  EXPECT_EQ(0U, attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory.address));
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, stream()));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  ASSERT_CU(cuCtxPushCurrent(context));
  EXPECT_EQ(3U, attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory.address));
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, stream()));
  EXPECT_CU(CUDA_SUCCESS, cuCtxSynchronize()) << "the other context has no error";
  EXPECT_EQ(7U, word_at(memory.address));
  CUcontext popped = nullptr;
  ASSERT_CU(cuCtxPopCurrent(&popped));
}

TEST_F(VirtualMemory, AccessIsTakenFromOneDeviceAndStaysWithTheOther) {
  const Mapped memory(1);
  allow(memory.address, kUnit, {1});
  CUmemAccessDesc none = kDeviceZero;
  none.location.id = 1;
  none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(cuMemSetAccess(memory.address, kUnit, &none, 1));
  ASSERT_CU(cuMemsetD8(memory.address, 1, kUnit));
  EXPECT_EQ(0x01010101U, word_at(memory.address));
  const InContext second(1);
  ASSERT_CU(cuMemsetD8(memory.address, 1, kUnit));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(VirtualMemory, OneCallSetsTheAccessOfSeveralDevices) {
  const Mapped memory(2);
  CUmemAccessDesc wanted[] = {kDeviceZero, kDeviceZero};
  wanted[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  wanted[1].location.id = 1;
  ASSERT_CU(cuMemSetAccess(memory.address, memory.bytes(), wanted, 2));
  for (const CUmemAccessDesc& expected : wanted) {
    unsigned long long flags = 0;
    ASSERT_CU(cuMemGetAccess(&flags, &expected.location, memory.address + kUnit));
    EXPECT_EQ(static_cast<unsigned>(expected.flags), flags);
  }
  wanted[1].location.id = 99;
  wanted[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(memory.address, memory.bytes(), wanted, 2));
  unsigned long long flags = 0;
  ASSERT_CU(cuMemGetAccess(&flags, &wanted[0].location, memory.address));
  EXPECT_EQ(static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READ), flags) << "a call that fails changes nothing";
}

TEST_F(VirtualMemory, TwoContextsOfADeviceShareItsAccess) {
  const Mapped memory(1);
  const InContext second(0);
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, stream()));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(7U, word_at(memory.address));
}

#if CUDA_VERSION >= 12050
// A green context with some of device 0's multiprocessors.
CUgreenCtx green_context() {
  CUdevResource whole{}, part{};
  unsigned count = 1;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  EXPECT_CU(CUDA_SUCCESS, cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_CU(CUDA_SUCCESS, cuDevSmResourceSplitByCount(&part, &count, &whole, nullptr, 0, 10));
  EXPECT_EQ(16U, part.sm.smCount);
  EXPECT_CU(CUDA_SUCCESS, cuDevResourceGenerateDesc(&description, &part, 1));
  EXPECT_CU(CUDA_SUCCESS, cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

TEST_F(VirtualMemory, GreenContextsHaveTheAccessAndTheMemoryOfTheirDevice) {
  const Mapped memory(1);
  const CUgreenCtx green = green_context();
  CUcontext as_context = nullptr, owner = nullptr, primary = nullptr;
  CUstream in = nullptr;
  ASSERT_CU(cuCtxFromGreenCtx(&as_context, green));
  ASSERT_CU(cuGreenCtxStreamCreate(&in, green, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_CU(cuCtxPushCurrent(as_context));
  const CUdeviceptr block = allocate(4);
  ASSERT_CU(launch_store(store_kernel(), memory.address, 7, in));
  ASSERT_CU(launch_store(store_kernel(), block, 8, in));
  ASSERT_CU(cuCtxPopCurrent(&as_context));
  ASSERT_CU(cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuCtxPushCurrent(primary));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block));
  EXPECT_EQ(primary, owner);
  ASSERT_CU(cuGreenCtxDestroy(green));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(in));
  EXPECT_EQ(7U, word_at(memory.address));
  EXPECT_EQ(8U, word_at(block)) << "memory outlives the green context";
  ASSERT_CU(cuMemFree(block));
  ASSERT_CU(cuCtxPopCurrent(&primary));
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
}

TEST_F(VirtualMemory, AFaultInAGreenContextIsTheWholeContexts) {
  const Mapped memory(1);
  const CUgreenCtx green = green_context();
  CUcontext primary = nullptr;
  CUstream in = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuGreenCtxStreamCreate(&in, green, CU_STREAM_NON_BLOCKING, 0));
  {
    const Held held(in);
    ASSERT_CU(cuMemsetD8Async(memory.address, 1, 1, in));
    ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  }
  ASSERT_CU(cuCtxPushCurrent(primary));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  ASSERT_CU(cuCtxPopCurrent(&primary));
  EXPECT_CU(CUDA_SUCCESS, cuStreamDestroy(in));
  ASSERT_CU(cuGreenCtxDestroy(green));
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
}
#endif

TEST_F(VirtualMemory, AnotherProcessOpensMemoryByItsDescriptor) {
  CUmemAllocationProp wanted = on_device(0);
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const Mapped memory(1, wanted);
  ASSERT_CU(cuMemsetD8(memory.address, 0x22, kUnit));
  ASSERT_CU(cuCtxSynchronize());
  int file = -1;
  ASSERT_CU(cuMemExportToShareableHandle(&file, memory.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
  EXPECT_EQ(0, run_as_other_process("VirtualMemory.OtherProcessOpensMemory", path));
  EXPECT_EQ(0x33333333U, word_at(memory.address));
  ASSERT_EQ(0, close(file));
}

TEST_F(VirtualMemory, OtherProcessOpensMemory) {
  if (!given_handle()) return;  // the part of the test before that another process does
  const int file = open(given_handle(), O_RDWR | O_CLOEXEC);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const CUdeviceptr address = reserve(kUnit);
  ASSERT_CU(cuMemMap(address, kUnit, 0, handle, 0));
  ASSERT_CU(cuMemRelease(handle));
  allow(address, kUnit, {0});
  EXPECT_EQ(0x22222222U, word_at(address));
  ASSERT_CU(cuMemsetD8(address, 0x33, kUnit));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemUnmap(address, kUnit));
  ASSERT_CU(cuMemAddressFree(address, kUnit));
}

TEST_F(VirtualMemory, MappingsOutliveTheContextInWhichTheyWereMade) {
  std::unique_ptr<Mapped> memory;
  {
    const InContext other(0);
    memory = std::make_unique<Mapped>(1);
    ASSERT_CU(cuMemsetD8(memory->address, 0x66, kUnit));
    ASSERT_CU(cuCtxSynchronize());
  }
  EXPECT_EQ(0x66666666U, word_at(memory->address));
}

TEST_F(VirtualMemory, ADeviceWithoutItSaysSo) {
  simcuda_set("vmm", 0);
  EXPECT_EQ(0, device_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp wanted = on_device(0);
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, kUnit, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, kUnit, &wanted, 0));
}

}  // namespace
