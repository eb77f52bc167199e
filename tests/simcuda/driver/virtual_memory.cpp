// Virtual memory management: addresses are reserved, memory is made, mapped there and opened for access, each apart.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"

namespace simcuda {
namespace {

// [assumed] 2 MiB, minimum and recommended.
constexpr size_t kUnit = size_t{2} << 20;

// Memory that cuMemCreate made, in a file without a name; it lives as long as its handle or a mapping of it.
struct Physical {
  Physical(Device* on, size_t size, const CUmemAllocationProp& wanted) : device(on), bytes(size), properties(wanted) {}
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical() {
    if (file >= 0) close(file);
    if (device && counted) device->used -= bytes;
  }
  Device* device;
  size_t bytes;
  CUmemAllocationProp properties;
  int file = -1;
  bool counted = false;
};

std::unordered_map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Physical>, int>>& handles() {
  static auto& all = *new std::unordered_map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Physical>, int>>;
  return all;
}

std::map<uintptr_t, size_t>& reservations() {
  static auto& all = *new std::map<uintptr_t, size_t>;
  return all;
}

bool is_reserved(uintptr_t address, size_t bytes) {
  auto after = reservations().upper_bound(address);
  if (after == reservations().begin()) return false;
  const auto& [begin, length] = *std::prev(after);
  return address + bytes <= begin + length;
}

bool close_addresses(uintptr_t address, size_t bytes) {
  return mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// The mappings that lie in the range; empty unless they fill it exactly.
std::vector<Allocation*> mappings_in(uintptr_t address, size_t bytes) {
  std::vector<Allocation*> found;
  for (const uintptr_t end = address + bytes; address < end;) {
    Allocation* mapping = driver().allocations.find_exact(address);
    if (!mapping || mapping->kind != MemoryKind::kMapped || address + mapping->bytes > end) return {};
    found.push_back(mapping);
    address += mapping->bytes;
  }
  return found;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp& properties) {
  if (!bytes || bytes % kUnit || properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Locked lock = lock_driver();
  Device* device = on_device ? find_device(properties.location.id) : nullptr;
  if (on_device && !device) return CUDA_ERROR_INVALID_DEVICE;
  if (device && bytes > device->bytes - device->used) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto physical = std::make_shared<Physical>(device, bytes, properties);
  physical->file = memfd_create("simcuda physical memory", MFD_CLOEXEC);
  if (physical->file < 0 || ftruncate(physical->file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (device) device->used += bytes;
  physical->counted = true;
  *handle = ++driver().last_id;
  handles().emplace(*handle, std::pair{physical, 1});
  return CUDA_SUCCESS;
}

// [documented] All of the handle's memory, from its start; nothing may be mapped there yet.
CUresult map(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle) {
  Locked lock = lock_driver();
  CUresult ignored;
  const auto found = handles().find(handle);
  if (found == handles().end() || offset || !bytes || bytes != found->second.first->bytes || pointer % kUnit)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_reserved(pointer, bytes) || driver().allocations.overlaps(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto physical = found->second.first;
  void* memory =
      mmap(reinterpret_cast<void*>(to_address(pointer)), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Context* context = current_context(ignored);
  driver().allocations.insert({.begin = to_address(pointer),
                               .bytes = bytes,
                               .kind = MemoryKind::kMapped,
                               .context = context,
                               .device = physical->device ? physical->device->ordinal : 0,
                               .may_access = false,
                               .owner = physical});
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr pointer, size_t bytes) {
  Locked lock = lock_driver();
  const auto mappings = mappings_in(to_address(pointer), bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  // [assumed] It waits for all work of the current context.
  CUresult ignored;
  if (const Context* context = current_context(ignored)) wait_for(lock, unfinished_in(lock, *context));
  for (const Allocation* mapping : mappings_in(to_address(pointer), bytes)) {
    close_addresses(mapping->begin, mapping->bytes);
    const uintptr_t begin = mapping->begin;
    driver().allocations.erase(begin);
  }
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc& access) {
  Locked lock = lock_driver();
  const auto mappings = mappings_in(to_address(pointer), bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  const int protection = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                         : access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                            : PROT_NONE;
  for (Allocation* mapping : mappings) {
    mprotect(reinterpret_cast<void*>(mapping->begin), mapping->bytes, protection);
    mapping->may_access = protection != PROT_NONE;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                                  CUmemAllocationGranularity_flags) {
  SIMCUDA_CALL(kContextless);
  if (!granularity || !properties) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kUnit;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr hint,
                                        unsigned long long flags) {
  SIMCUDA_CALL(kContextless);
  if (!pointer || !bytes || bytes % kUnit || flags || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  const size_t unit = alignment > kUnit ? alignment : kUnit;
  (void)hint;  // [documented] only a wish
  void* memory = mmap(nullptr, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t begin = to_address(memory), aligned = round_up(begin, unit);
  if (aligned > begin) munmap(memory, aligned - begin);
  if (begin + unit > aligned) munmap(reinterpret_cast<void*>(aligned + bytes), begin + unit - aligned);
  Locked lock = lock_driver();
  reservations().emplace(aligned, bytes);
  *pointer = aligned;
  return CUDA_SUCCESS;
}

// [documented] The whole reservation, with nothing mapped in it.
extern "C" CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto found = reservations().find(to_address(pointer));
  if (found == reservations().end() || found->second != bytes || driver().allocations.overlaps(pointer, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  reservations().erase(found);
  munmap(reinterpret_cast<void*>(to_address(pointer)), bytes);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                const CUmemAllocationProp* properties, unsigned long long flags) {
  SIMCUDA_CALL(kContextless | kAllocates);
  if (!handle || !properties || flags) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, bytes, *properties);
}

extern "C" CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMCUDA_CALL(kContextless | kFrees);
  Locked lock = lock_driver();
  const auto found = handles().find(handle);
  if (found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.second == 0) handles().erase(found);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags) {
  SIMCUDA_CALL(kContextless);
  return flags ? CUDA_ERROR_INVALID_VALUE : map(pointer, bytes, offset, handle);
}

extern "C" CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_CALL(kUnsafe);
  return unmap(pointer, bytes);
}

// The access of the last location counts: every device reaches every address here.
extern "C" CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  SIMCUDA_CALL(kContextless);
  return access && count ? set_access(pointer, bytes, access[count - 1]) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const Allocation* mapping = driver().allocations.find(to_address(pointer));
  if (!flags || !location || !mapping) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->may_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// [documented] Another reference to the memory that is mapped there.
extern "C" CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const Allocation* mapping = driver().allocations.find(to_address(pointer));
  if (!handle || !mapping || mapping->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  const auto physical = std::static_pointer_cast<Physical>(mapping->owner);
  for (auto& [known, entry] : handles()) {
    if (entry.first != physical) continue;
    ++entry.second;
    *handle = known;
    return CUDA_SUCCESS;
  }
  *handle = ++driver().last_id;
  handles().emplace(*handle, std::pair{physical, 1});
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                           CUmemGenericAllocationHandle handle) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto found = handles().find(handle);
  if (!properties || found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.first->properties;
  return CUDA_SUCCESS;
}
