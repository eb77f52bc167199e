// Pinned memory: flags and device pointers of base and interior, alignment of small blocks, pages that they share,
// legal and illegal frees, registered memory.
#include <sys/mman.h>

#include <set>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

std::string flags_of(void* pointer) {
  unsigned flags = 0;
  const CUresult result = driver().cuMemHostGetFlags(&flags, pointer);
  return result == CUDA_SUCCESS ? std::to_string(flags) : name_of(result);
}

std::string device_pointer_of(char* pointer, char* base) {
  CUdeviceptr device_pointer = 0;
  const CUresult result = driver().cuMemHostGetDevicePointer(&device_pointer, pointer, 0);
  if (result != CUDA_SUCCESS) return name_of(result);
  return "base+" + std::to_string(device_pointer - reinterpret_cast<CUdeviceptr>(base));
}

void run_queries() {
  open_device();
  for (const unsigned flags : {0u, 1u, 2u, 4u, 7u}) {
    auto* const block = static_cast<char*>(allocate_host(10000, flags));
    answer("pinned.flags_" + std::to_string(flags), flags_of(block));
    if (flags != 0) continue;
    answer("pinned.flags_of_interior", flags_of(block + 1000));
    answer("pinned.flags_past_the_end", flags_of(block + 10000));
    answer("pinned.device_pointer_of_base", device_pointer_of(block, block));
    answer("pinned.device_pointer_of_interior", device_pointer_of(block + 1000, block));
    CUdeviceptr device_pointer = 0;
    answer("pinned.device_pointer_with_flags", name_of(driver().cuMemHostGetDevicePointer(&device_pointer, block, 1)));
  }
  void* block = nullptr;
  PROBE_MUST(driver().cuMemAllocHost(&block, 10000));
  answer("pinned.flags_by_cuMemAllocHost", flags_of(block));
  static char pageable[4096];
  answer("pinned.flags_of_pageable", flags_of(pageable));
  answer("pinned.device_pointer_of_pageable", device_pointer_of(pageable, pageable));
}

void run_small_blocks() {
  open_device();
  uintptr_t seen = 0;
  std::set<uintptr_t> pages;
  constexpr int kBlocks = 64;
  for (int count = 0; count < kBlocks; ++count) {
    const auto address = reinterpret_cast<uintptr_t>(allocate_host(64));
    seen |= address;
    pages.insert(address / 4096);
  }
  size_t alignment = 1;
  while (alignment < 4096 && (seen & alignment) == 0) alignment *= 2;
  answer("pinned.alignment_of_64_bytes", std::to_string(alignment));
  answer("pinned.small_blocks_share_pages", yes_or_no(pages.size() < kBlocks));
}

void run_frees() {
  const CUcontext primary = open_device();
  const auto freed = [](void* pointer) { return name_of(driver().cuMemFreeHost(pointer)); };
  auto* const block = static_cast<char*>(allocate_host(10000));
  answer("pinned_free.null", freed(nullptr));
  answer("pinned_free.interior", freed(block + 1000));
  answer("pinned_free.good", freed(block));
  answer("pinned_free.twice", freed(block));
  static char pageable[4096];
  answer("pinned_free.pageable", freed(pageable));
  answer("pinned_free.device_memory", freed(reinterpret_cast<void*>(allocate(4096))));
  void* const pages = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  answer("register.good", name_of(driver().cuMemHostRegister(pages, 65536, 0)));
  answer("register.twice", name_of(driver().cuMemHostRegister(pages, 65536, 0)));
  answer("register.freed_by_cuMemFreeHost", freed(pages));
  answer("register.unregister_interior", name_of(driver().cuMemHostUnregister(static_cast<char*>(pages) + 4096)));
  answer("register.unregister", name_of(driver().cuMemHostUnregister(pages)));
  answer("register.unregister_twice", name_of(driver().cuMemHostUnregister(pages)));
  void* const pinned = allocate_host(4096);
  answer("register.pinned", name_of(driver().cuMemHostRegister(pinned, 4096, 0)));
  answer("register.unregister_pinned", name_of(driver().cuMemHostUnregister(pinned)));
  void* const without = allocate_host(4096);
  leave_contexts();
  answer("pinned_free.without_a_context", freed(without));
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  CUcontext own = nullptr;
  void* const of_primary = allocate_host(4096);
  PROBE_MUST(driver().create_context(&own, 0, 0));
  answer("pinned_free.while_another_context_is_current", freed(of_primary));
  void* const of_own = allocate_host(4096);
  PROBE_MUST(driver().cuCtxDestroy(own));
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  answer("pinned_free.after_its_context_was_destroyed", freed(of_own));
}

const Registration queries_case({"pinned_queries",
                                 "flags and device pointers of pinned memory",
                                 20,
                                 {{"pinned.flags_0", "2"},
                                  {"pinned.flags_1", "2"},
                                  {"pinned.flags_2", "2"},
                                  {"pinned.flags_4", "6"},
                                  {"pinned.flags_7", "6"},
                                  {"pinned.flags_of_interior", "2"},
                                  {"pinned.flags_past_the_end", "invalid_value"},
                                  {"pinned.device_pointer_of_base", "base+0"},
                                  {"pinned.device_pointer_of_interior", "base+1000"},
                                  {"pinned.device_pointer_with_flags", "invalid_value"},
                                  {"pinned.flags_by_cuMemAllocHost", "2"},
                                  {"pinned.flags_of_pageable", "invalid_value"},
                                  {"pinned.device_pointer_of_pageable", "invalid_value"}},
                                 run_queries});
const Registration small_case({"pinned_small_blocks",
                               "where small pinned blocks lie",
                               20,
                               {{"pinned.alignment_of_64_bytes", ""}, {"pinned.small_blocks_share_pages", ""}},
                               run_small_blocks});
const Registration frees_case({"pinned_frees",
                               "legal and illegal frees of pinned memory, and registered memory",
                               20,
                               {{"pinned_free.null", "ok"},
                                {"pinned_free.interior", "invalid_value"},
                                {"pinned_free.good", "ok"},
                                {"pinned_free.twice", "invalid_value"},
                                {"pinned_free.pageable", "invalid_value"},
                                {"pinned_free.device_memory", "invalid_value"},
                                {"register.good", "ok"},
                                {"register.twice", "already_registered"},
                                {"register.freed_by_cuMemFreeHost", "invalid_value"},
                                {"register.unregister_interior", "invalid_value"},
                                {"register.unregister", "ok"},
                                {"register.unregister_twice", "not_registered"},
                                {"register.pinned", "invalid_value"},
                                {"register.unregister_pinned", "invalid_value"},
                                {"pinned_free.without_a_context", "ok"},
                                {"pinned_free.while_another_context_is_current", "ok"},
                                {"pinned_free.after_its_context_was_destroyed", "invalid_value"}},
                               run_frees});

}  // namespace
}  // namespace probe
