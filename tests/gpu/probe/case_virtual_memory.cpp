// Virtual memory: what the driver answers for it, which calls are refused, which of them wait for running work, what
// becomes of work whose memory is unmapped, and what the calls cost.
#include <functional>

#include "driver.hpp"
#include "probe.hpp"
#include "series.hpp"

namespace probe {
namespace {

constexpr int kBusyMilliseconds = 300;

CUmemAllocationProp on_the_device() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = 0;
  return wanted;
}

size_t granularity(CUmemAllocationGranularity_flags which) {
  const CUmemAllocationProp wanted = on_the_device();
  size_t bytes = 0;
  PROBE_MUST(driver().cuMemGetAllocationGranularity(&bytes, &wanted, which));
  return bytes;
}

CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr address = 0;
  PROBE_MUST(driver().cuMemAddressReserve(&address, bytes, 0, 0, 0));
  return address;
}

CUmemGenericAllocationHandle create(size_t bytes) {
  const CUmemAllocationProp wanted = on_the_device();
  CUmemGenericAllocationHandle handle = 0;
  PROBE_MUST(driver().cuMemCreate(&handle, bytes, &wanted, 0));
  return handle;
}

CUresult allow(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location = on_the_device().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver().cuMemSetAccess(address, bytes, &access, 1);
}

// Two handles that are mapped one after the other in a reservation of four.
struct Mapped {
  size_t unit;
  CUdeviceptr address;
  CUmemGenericAllocationHandle first, second;
};

Mapped map_two() {
  const size_t unit = granularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const Mapped made{unit, reserve(4 * unit), create(unit), create(unit)};
  PROBE_MUST(driver().cuMemMap(made.address, unit, 0, made.first, 0));
  PROBE_MUST(driver().cuMemMap(made.address + unit, unit, 0, made.second, 0));
  PROBE_MUST(allow(made.address, 2 * unit));
  return made;
}

template <typename Value>
std::string attribute(CUpointer_attribute which, CUdeviceptr address, const std::function<std::string(Value)>& text) {
  Value value{};
  const CUresult result = driver().cuPointerGetAttribute(&value, which, address);
  return result == CUDA_SUCCESS ? text(value) : name_of(result);
}

std::string yes_attribute(CUpointer_attribute which, CUdeviceptr address) {
  return attribute<unsigned char>(which, address, [](unsigned char value) { return yes_or_no(value != 0); });
}

// The part of the reservation that begins and ends so.
std::string part(const Mapped& on, CUdeviceptr begin, size_t bytes) {
  if (begin == on.address && bytes == 4 * on.unit) return "the reservation";
  if (begin == on.address && bytes == 2 * on.unit) return "all that is mapped";
  return begin == on.address + on.unit && bytes == on.unit ? "its handle" : "something else";
}

std::string address_range(const Mapped& on, CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult result = driver().cuMemGetAddressRange(&base, &bytes, address);
  return result == CUDA_SUCCESS ? part(on, base, bytes) : name_of(result);
}

std::string attribute_range(const Mapped& on, CUdeviceptr address) {
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  CUresult result = driver().cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
  if (result == CUDA_SUCCESS) result = driver().cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
  return result == CUDA_SUCCESS ? part(on, begin, bytes) : name_of(result);
}

void answer_device_attribute(const char* rule, int attribute) {
  int value = 0;
  const CUresult result = driver().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0);
  answer(rule, result == CUDA_SUCCESS ? yes_or_no(value != 0) : name_of(result));
}

void run_attributes() {
  open_device();
  answer_device_attribute("vmm.supported", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  answer_device_attribute("vmm.rdma_supported", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  answer_device_attribute("vmm.fabric_supported", 128);
  answer("vmm.granularity.minimum", std::to_string(granularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM)));
  answer("vmm.granularity.recommended", std::to_string(granularity(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)));
  const Mapped on = map_two();
  const CUdeviceptr inside = on.address + on.unit + 100, empty = on.address + 3 * on.unit;
  answer("vmm.cuMemGetAddressRange", address_range(on, inside));
  answer("vmm.range", attribute_range(on, inside));
  answer("vmm.range_without_memory", attribute_range(on, empty));
  answer("vmm.mapped", yes_attribute(CU_POINTER_ATTRIBUTE_MAPPED, inside));
  answer("vmm.mapped_without_memory", yes_attribute(CU_POINTER_ATTRIBUTE_MAPPED, empty));
  answer("vmm.ipc_capable", yes_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  answer("vmm.rdma_capable", yes_attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside));
  answer("vmm.context", attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside,
                                             [](CUcontext context) { return std::string(context ? "some" : "null"); }));
  const unsigned sync = 1;
  answer("vmm.sync_memops",
         name_of(driver().cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, on.address)));
  CUmemGenericAllocationHandle again = 0;
  void* const pointer = reinterpret_cast<void*>(inside);
  PROBE_MUST(driver().cuMemRetainAllocationHandle(&again, pointer));
  answer("vmm.retained_handle_is_the_same", yes_or_no(again == on.second));
  PROBE_MUST(driver().cuMemRelease(again));
  PROBE_MUST(driver().cuMemRelease(on.second));
  answer("vmm.retained_after_its_release", name_of(driver().cuMemRetainAllocationHandle(&again, pointer)));
}

void run_refusals() {
  open_device();
  const Driver& call = driver();
  const Mapped on = map_two();
  const CUmemAllocationProp wanted = on_the_device();
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUipcMemHandle shared{};
  answer("vmm.cuMemFree", name_of(call.cuMemFree(on.address)));
  answer("vmm.cuMemFreeAsync", name_of(call.cuMemFreeAsync(on.address, create_stream())));
  answer("vmm.cuIpcGetMemHandle", name_of(call.cuIpcGetMemHandle(&shared, on.address)));
  answer("vmm.reserve_a_page", name_of(call.cuMemAddressReserve(&address, 4096, 0, 0, 0)));
  answer("vmm.reserve_odd_bytes", name_of(call.cuMemAddressReserve(&address, 5000, 0, 0, 0)));
  answer("vmm.create_odd_bytes", name_of(call.cuMemCreate(&handle, on.unit + 4096, &wanted, 0)));
  answer("vmm.map_where_memory_is", name_of(call.cuMemMap(on.address, on.unit, 0, on.first, 0)));
  answer("vmm.map_unaligned", name_of(call.cuMemMap(on.address + 2 * on.unit + 4096, on.unit, 0, on.first, 0)));
  answer("vmm.map_a_second_time", name_of(call.cuMemMap(on.address + 2 * on.unit, on.unit, 0, on.first, 0)));
  const CUmemGenericAllocationHandle large = create(2 * on.unit);
  answer("vmm.map_a_part", name_of(call.cuMemMap(on.address + 3 * on.unit, on.unit, 0, large, 0)));
  answer("vmm.access_to_a_part", name_of(allow(on.address, on.unit / 2)));
  answer("vmm.unmap_a_part", name_of(call.cuMemUnmap(on.address, on.unit / 2)));
  answer("vmm.unmap_two_mappings", name_of(call.cuMemUnmap(on.address, 2 * on.unit)));
  answer("vmm.unmap_twice", name_of(call.cuMemUnmap(on.address, on.unit)));
  answer("vmm.free_addresses_with_memory", name_of(call.cuMemAddressFree(on.address, 4 * on.unit)));
}

// The context may be lost by it.
void run_without_access() {
  open_device();
  const Mapped on = map_two();
  const CUmemGenericAllocationHandle third = create(on.unit);
  PROBE_MUST(driver().cuMemMap(on.address + 2 * on.unit, on.unit, 0, third, 0));
  answer("vmm.no_access.memset", name_of(driver().cuMemsetD32(on.address + 2 * on.unit, 1, 16)));
  answer("vmm.no_access.afterwards", name_of(driver().cuCtxSynchronize()));
}

std::string waits(const std::function<CUresult()>& call) {
  const uint64_t start = now_nanoseconds();
  const CUresult result = call();
  const bool waited = now_nanoseconds() - start > uint64_t{kBusyMilliseconds} * 1'000'000 / 2;
  return (result == CUDA_SUCCESS ? "" : name_of(result) + " ") + (waited ? "waits" : "returns");
}

// The work that runs meanwhile does not touch the memory.
void run_waits() {
  open_device();
  const Driver& call = driver();
  const Mapped on = map_two();
  const CUmemAllocationProp wanted = on_the_device();
  const CUstream stream = create_stream();
  const CUdeviceptr third = on.address + 2 * on.unit;
  CUmemGenericAllocationHandle handle = 0;
  keep_busy(stream, 1);
  const auto measure = [&](const char* rule, const std::function<CUresult()>& function) {
    PROBE_MUST(call.cuCtxSynchronize());
    keep_busy(stream, kBusyMilliseconds);
    answer(rule, waits(function));
  };
  measure("waits.cuMemCreate", [&] { return call.cuMemCreate(&handle, on.unit, &wanted, 0); });
  measure("waits.cuMemMap", [&] { return call.cuMemMap(third, on.unit, 0, handle, 0); });
  measure("waits.cuMemSetAccess", [&] { return allow(third, on.unit); });
  measure("waits.cuMemUnmap", [&] { return call.cuMemUnmap(third, on.unit); });
  measure("waits.cuMemRelease", [&] { return call.cuMemRelease(handle); });
}

// The memory goes while a copy to it is queued.
void run_unmapped_in_use() {
  open_device();
  const Mapped on = map_two();
  const CUstream stream = create_stream();
  void* const source = allocate_host(4096);
  keep_busy(stream, 1);
  PROBE_MUST(driver().cuCtxSynchronize());
  keep_busy(stream, kBusyMilliseconds);
  PROBE_MUST(driver().cuMemcpyHtoDAsync(on.address, source, 4096, stream));
  answer("vmm.unmapped_in_use.cuMemUnmap", waits([&] { return driver().cuMemUnmap(on.address, on.unit); }));
  answer("vmm.unmapped_in_use.afterwards", name_of(driver().cuStreamSynchronize(stream)));
}

void run_costs() {
  open_device();
  const Driver& call = driver();
  const CUmemAllocationProp wanted = on_the_device();
  for (const size_t bytes : {size_t{2} << 20, size_t{32} << 20}) {
    const CUdeviceptr address = reserve(bytes);
    CUmemGenericAllocationHandle handle = 0;
    pair_cost(
        "cuMemCreate", "cuMemRelease", bytes,
        [&] { return call.cuMemCreate(&handle, bytes, &wanted, 0) == CUDA_SUCCESS; },
        [&] { call.cuMemRelease(handle); });
    handle = create(bytes);
    pair_cost(
        "cuMemMap", "cuMemUnmap without access", bytes,
        [&] { return call.cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS; },
        [&] { call.cuMemUnmap(address, bytes); });
    pair_cost(
        "cuMemMap and cuMemSetAccess", "cuMemUnmap", bytes,
        [&] {
          return call.cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS && allow(address, bytes) == CUDA_SUCCESS;
        },
        [&] { call.cuMemUnmap(address, bytes); });
  }
}

const Registration attributes_case({"virtual_memory_attributes",
                                    "what the driver answers for virtual memory",
                                    20,
                                    {{"vmm.supported", "yes"},
                                     {"vmm.rdma_supported", ""},
                                     {"vmm.fabric_supported", ""},
                                     {"vmm.granularity.minimum", "2097152"},
                                     {"vmm.granularity.recommended", "2097152"},
                                     {"vmm.cuMemGetAddressRange", "its handle"},
                                     {"vmm.range", "the reservation"},
                                     {"vmm.range_without_memory", "invalid_value"},
                                     {"vmm.mapped", "yes"},
                                     {"vmm.mapped_without_memory", "invalid_value"},
                                     {"vmm.ipc_capable", "no"},
                                     {"vmm.rdma_capable", "no"},
                                     {"vmm.context", "null"},
                                     {"vmm.sync_memops", "not_supported"},
                                     {"vmm.retained_handle_is_the_same", "yes"},
                                     {"vmm.retained_after_its_release", "ok"}},
                                    run_attributes});
const Registration refusals_case({"virtual_memory_refusals",
                                  "calls on virtual memory that may be refused",
                                  20,
                                  {{"vmm.cuMemFree", "invalid_value"},
                                   {"vmm.cuMemFreeAsync", "invalid_value"},
                                   {"vmm.cuIpcGetMemHandle", "invalid_value"},
                                   {"vmm.reserve_a_page", "invalid_value"},
                                   {"vmm.reserve_odd_bytes", "invalid_value"},
                                   {"vmm.create_odd_bytes", "invalid_value"},
                                   {"vmm.map_where_memory_is", "invalid_value"},
                                   {"vmm.map_unaligned", "invalid_value"},
                                   {"vmm.map_a_second_time", "ok"},
                                   {"vmm.map_a_part", "not_supported"},
                                   {"vmm.access_to_a_part", "invalid_value"},
                                   {"vmm.unmap_a_part", "invalid_value"},
                                   {"vmm.unmap_two_mappings", "ok"},
                                   {"vmm.unmap_twice", "ok"},
                                   {"vmm.free_addresses_with_memory", "invalid_value"}},
                                  run_refusals});
const Registration no_access_case({"virtual_memory_no_access",
                                   "a memset of memory without access",
                                   20,
                                   {{"vmm.no_access.memset", "invalid_value"}, {"vmm.no_access.afterwards", "ok"}},
                                   run_without_access});
const Registration waits_case({"virtual_memory_waits",
                               "which calls on virtual memory wait for running work",
                               20,
                               {{"waits.cuMemCreate", "returns"},
                                {"waits.cuMemMap", "returns"},
                                {"waits.cuMemSetAccess", "returns"},
                                {"waits.cuMemUnmap", "returns"},
                                {"waits.cuMemRelease", "returns"}},
                               run_waits});
const Registration in_use_case({"virtual_memory_unmapped_in_use",
                                "memory that is unmapped while a copy to it is queued",
                                20,
                                {{"vmm.unmapped_in_use.cuMemUnmap", "returns"},
                                 {"vmm.unmapped_in_use.afterwards", "launch_failed"}},
                                run_unmapped_in_use});
const Registration cost_case({"virtual_memory_cost", "what calls on virtual memory cost", 20, {}, run_costs});

}  // namespace
}  // namespace probe
