// Device allocations: legal and illegal frees, zero and huge sizes, address ranges, alignment, and how fine
// cuMemGetInfo counts.
#include <thread>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

std::string freed(CUdeviceptr pointer) { return name_of(driver().cuMemFree(pointer)); }

void run_frees() {
  const CUcontext primary = open_device();
  int on_the_stack = 0;
  answer("free.null", freed(0));
  const CUdeviceptr block = allocate(4096);
  answer("free.interior", freed(block + 512));
  answer("free.good", freed(block));
  answer("free.twice", freed(block));
  answer("free.pageable", freed(reinterpret_cast<CUdeviceptr>(&on_the_stack)));
  answer("free.never_allocated", freed(0x1000));
  void* const host_block = allocate_host(4096);
  answer("free.pinned_by_cuMemFree", freed(reinterpret_cast<CUdeviceptr>(host_block)));
  CUdeviceptr managed = 0, pooled = 0;
  const CUresult made = driver().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL);
  answer("free.managed_by_cuMemFree", made == CUDA_SUCCESS ? freed(managed) : "not made: " + name_of(made));
  const CUstream stream = create_stream();
  if (driver().cuMemAllocAsync(&pooled, 4096, stream) == CUDA_SUCCESS) {
    PROBE_MUST(driver().cuStreamSynchronize(stream));
    answer("free.pooled_by_cuMemFree", freed(pooled));
  }
  answer("free.block_by_cuMemFreeAsync", name_of(driver().cuMemFreeAsync(allocate(4096), stream)));
  CUcontext own = nullptr;
  const CUdeviceptr of_primary = allocate(4096);
  PROBE_MUST(driver().create_context(&own, 0, 0));
  answer("free.while_another_context_is_current", freed(of_primary));
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  const CUdeviceptr without = allocate(4096), in_thread = allocate(4096);
  leave_contexts();
  answer("free.without_a_context", freed(without));
  std::thread([&] { answer("free.in_a_fresh_thread", freed(in_thread)); }).join();
  CUdeviceptr pointer = 0;
  answer("allocate.without_a_context", name_of(driver().cuMemAlloc(&pointer, 4096)));
  PROBE_MUST(driver().cuCtxSetCurrent(own));
  const CUdeviceptr of_own = allocate(4096);
  PROBE_MUST(driver().cuCtxDestroy(own));
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  answer("free.after_its_context_was_destroyed", freed(of_own));
}

// What Cistern answers for a freed block that it keeps.
void run_uses_of_freed_blocks() {
  open_device();
  const CUdeviceptr block = allocate(size_t{4} << 20), neighbour = allocate(size_t{4} << 20);
  const CUstream stream = create_stream();
  int word = 0;
  PROBE_MUST(driver().cuMemFree(block));
  for (const bool inside : {false, true}) {
    const CUdeviceptr at = block + (inside ? 4096 : 0);
    const std::string where = inside ? "inside_of_freed" : "freed";
    answer("use.cuMemcpyHtoD_to_" + where, name_of(driver().cuMemcpyHtoD(at, &word, sizeof word)));
    answer("use.cuMemcpyDtoH_from_" + where, name_of(driver().cuMemcpyDtoH(&word, at, sizeof word)));
    answer("use.cuMemcpyHtoDAsync_to_" + where, name_of(driver().cuMemcpyHtoDAsync(at, &word, sizeof word, stream)));
    answer("use.cuMemsetD32_of_" + where, name_of(driver().cuMemsetD32(at, 0, 1)));
  }
  answer("use.no_bytes_of_freed", name_of(driver().cuMemcpyHtoD(block, &word, 0)));
  answer("use.the_context_lives_on", name_of(driver().cuMemsetD32(neighbour, 0, 1)));
}

void run_sizes() {
  open_device();
  CUdeviceptr pointer = 1;
  size_t pitch = 0;
  answer("size.cuMemAlloc_0", name_of(driver().cuMemAlloc(&pointer, 0)));
  answer("size.cuMemAlloc_0_writes_the_pointer", yes_or_no(pointer != 1));
  answer("size.cuMemAlloc_huge", name_of(driver().cuMemAlloc(&pointer, size_t{1} << 50)));
  answer("size.cuMemAlloc_all_ones", name_of(driver().cuMemAlloc(&pointer, ~size_t{0})));
  answer("size.cuMemAllocPitch_0", name_of(driver().cuMemAllocPitch(&pointer, &pitch, 0, 16, 4)));
  answer("size.cuMemAllocManaged_0", name_of(driver().cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL)));
  answer("size.cuMemAllocAsync_0", name_of(driver().cuMemAllocAsync(&pointer, 0, create_stream())));
  void* host_pointer = nullptr;
  answer("size.cuMemHostAlloc_0", name_of(driver().cuMemHostAlloc(&host_pointer, 0, 0)));
  answer("size.cuMemAllocHost_0", name_of(driver().cuMemAllocHost(&host_pointer, 0)));
  answer("size.cuMemHostAlloc_huge", name_of(driver().cuMemHostAlloc(&host_pointer, size_t{1} << 50, 0)));
  answer("size.cuMemHostAlloc_unknown_flags", name_of(driver().cuMemHostAlloc(&host_pointer, 4096, 1u << 20)));
  PROBE_MUST(driver().cuMemAllocPitch(&pointer, &pitch, 100, 16, 4));
  answer("size.pitch_of_100_bytes", std::to_string(pitch));
  answer("size.cuMemAlloc_null_argument", name_of(driver().cuMemAlloc(nullptr, 4096)));
}

void run_ranges() {
  open_device();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  for (const size_t size : {size_t{1}, size_t{100}, size_t{513}, size_t{4095}, size_t{1048577}, size_t{2097153}}) {
    const CUdeviceptr block = allocate(size);
    const CUresult result = driver().cuMemGetAddressRange(&base, &bytes, block);
    const std::string rule = "range.size_of_" + std::to_string(size);
    answer(rule, result != CUDA_SUCCESS ? name_of(result) : bytes == size ? "as asked" : std::to_string(bytes));
  }
  const CUdeviceptr block = allocate(1000);
  PROBE_MUST(driver().cuMemGetAddressRange(&base, &bytes, block + 999));
  answer("range.base_of_interior", base == block ? "the block" : "another");
  answer("range.byte_1000_of_1000", name_of(driver().cuMemGetAddressRange(&base, &bytes, block + 1000)));
  answer("range.null", name_of(driver().cuMemGetAddressRange(&base, &bytes, 0)));
  answer("range.without_base", name_of(driver().cuMemGetAddressRange(nullptr, &bytes, block)));
  answer("range.without_size", name_of(driver().cuMemGetAddressRange(&base, nullptr, block)));
  PROBE_MUST(driver().cuMemFree(block));
  answer("range.freed", name_of(driver().cuMemGetAddressRange(&base, &bytes, block)));
  int on_the_stack = 0;
  answer("range.pageable",
         name_of(driver().cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(&on_the_stack))));
  void* const host_block = allocate_host(100);
  const CUresult pinned = driver().cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(host_block));
  answer("range.pinned_100", pinned == CUDA_SUCCESS ? std::to_string(bytes) : name_of(pinned));
  const CUstream stream = create_stream();
  CUdeviceptr pooled = 0;
  if (driver().cuMemAllocAsync(&pooled, 1000, stream) == CUDA_SUCCESS) {
    const CUresult result = driver().cuMemGetAddressRange(&base, &bytes, pooled);
    answer("range.pooled_1000", result != CUDA_SUCCESS            ? name_of(result)
                                : bytes == 1000 && base == pooled ? "as asked"
                                                                  : std::to_string(bytes));
  }
}

void run_addresses() {
  open_device();
  CUdeviceptr seen = 0;
  bool small_share = false;
  CUdeviceptr previous = 0;
  for (int count = 0; count < 64; ++count) {
    const CUdeviceptr block = allocate(1);
    seen |= block;
    small_share |= previous != 0 && block / 2097152 == previous / 2097152;
    previous = block;
  }
  answer("address.alignment_of_device_blocks_at_least", (seen & 511) == 0 ? "512" : (seen & 255) == 0 ? "256" : "less");
  answer("address.two_small_blocks_within_one_2_MiB", yes_or_no(small_share));
  const CUdeviceptr first = allocate(8 << 20);
  PROBE_MUST(driver().cuMemFree(first));
  answer("address.freed_address_given_again_at_once", yes_or_no(allocate(8 << 20) == first));
}

size_t free_bytes_now() {
  size_t free_bytes = 0, total_bytes = 0;
  PROBE_MUST(driver().cuMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

void run_information() {
  open_device();
  allocate(1);
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{1} << 20, (size_t{1} << 21) + 1, size_t{64} << 20}) {
    const size_t before = free_bytes_now();
    const CUdeviceptr block = allocate(size);
    const size_t taken = before - free_bytes_now();
    PROBE_MUST(driver().cuMemFree(block));
    const std::string rule = "information.free_bytes_taken_by_" + std::to_string(size);
    answer(rule, std::to_string(taken));
    answer(rule + "_and_back", yes_or_no(free_bytes_now() == before));
  }
  size_t bytes = 0;
  answer("information.without_free", name_of(driver().cuMemGetInfo(nullptr, &bytes)));
  answer("information.without_total", name_of(driver().cuMemGetInfo(&bytes, nullptr)));
}

const Registration frees_case({"frees",
                               "legal and illegal frees",
                               20,
                               {{"free.null", "ok"},
                                {"free.interior", "invalid_value"},
                                {"free.good", "ok"},
                                {"free.twice", "invalid_value"},
                                {"free.pageable", "invalid_value"},
                                {"free.never_allocated", "invalid_value"},
                                {"free.pinned_by_cuMemFree", "invalid_value"},
                                {"free.managed_by_cuMemFree", "ok"},
                                {"free.pooled_by_cuMemFree", "ok"},
                                {"free.block_by_cuMemFreeAsync", "ok"},
                                {"free.while_another_context_is_current", "ok"},
                                {"free.without_a_context", "ok"},
                                {"free.in_a_fresh_thread", "ok"},
                                {"allocate.without_a_context", "invalid_context"},
                                {"free.after_its_context_was_destroyed", "invalid_value"}},
                               run_frees});
const Registration uses_case({"uses_of_freed_blocks",
                              "copies and memsets of freed blocks",
                              20,
                              {{"use.cuMemcpyHtoD_to_freed", "invalid_value"},
                               {"use.cuMemcpyDtoH_from_freed", "invalid_value"},
                               {"use.cuMemcpyHtoDAsync_to_freed", "invalid_value"},
                               {"use.cuMemsetD32_of_freed", "invalid_value"},
                               {"use.cuMemcpyHtoD_to_inside_of_freed", "invalid_value"},
                               {"use.cuMemcpyDtoH_from_inside_of_freed", "invalid_value"},
                               {"use.cuMemcpyHtoDAsync_to_inside_of_freed", "invalid_value"},
                               {"use.cuMemsetD32_of_inside_of_freed", "invalid_value"},
                               {"use.no_bytes_of_freed", "ok"},
                               {"use.the_context_lives_on", "ok"}},
                              run_uses_of_freed_blocks});
const Registration sizes_case({"sizes",
                               "zero, huge and odd sizes",
                               20,
                               {{"size.cuMemAlloc_0", "invalid_value"},
                                {"size.cuMemAlloc_0_writes_the_pointer", "yes"},
                                {"size.cuMemAlloc_huge", "out_of_memory"},
                                {"size.cuMemAlloc_all_ones", "out_of_memory"},
                                {"size.cuMemAllocPitch_0", "invalid_value"},
                                {"size.cuMemAllocManaged_0", "invalid_value"},
                                {"size.cuMemAllocAsync_0", "ok"},
                                {"size.cuMemHostAlloc_0", "ok"},
                                {"size.cuMemAllocHost_0", "ok"},
                                {"size.cuMemHostAlloc_huge", "out_of_memory"},
                                {"size.cuMemHostAlloc_unknown_flags", "invalid_value"},
                                {"size.pitch_of_100_bytes", "512"},
                                {"size.cuMemAlloc_null_argument", "invalid_value"}},
                               run_sizes});
const Registration ranges_case({"ranges",
                                "what cuMemGetAddressRange answers",
                                20,
                                {{"range.size_of_1", "as asked"},
                                 {"range.size_of_100", "as asked"},
                                 {"range.size_of_513", "as asked"},
                                 {"range.size_of_4095", "as asked"},
                                 {"range.size_of_1048577", "as asked"},
                                 {"range.size_of_2097153", "as asked"},
                                 {"range.base_of_interior", "the block"},
                                 {"range.byte_1000_of_1000", "not_found"},
                                 {"range.null", "not_found"},
                                 {"range.without_base", "ok"},
                                 {"range.without_size", "ok"},
                                 {"range.freed", "not_found"},
                                 {"range.pageable", "not_found"},
                                 {"range.pinned_100", "100"},
                                 {"range.pooled_1000", "as asked"}},
                                run_ranges});
const Registration addresses_case({"addresses",
                                   "where blocks lie",
                                   20,
                                   {{"address.alignment_of_device_blocks_at_least", "512"},
                                    {"address.two_small_blocks_within_one_2_MiB", ""},
                                    {"address.freed_address_given_again_at_once", ""}},
                                   run_addresses});
const Registration information_case({"information",
                                     "how fine cuMemGetInfo counts",
                                     20,
                                     {{"information.free_bytes_taken_by_1", ""},
                                      {"information.free_bytes_taken_by_1_and_back", "yes"},
                                      {"information.free_bytes_taken_by_4096", ""},
                                      {"information.free_bytes_taken_by_4096_and_back", "yes"},
                                      {"information.free_bytes_taken_by_1048576", ""},
                                      {"information.free_bytes_taken_by_1048576_and_back", "yes"},
                                      {"information.free_bytes_taken_by_2097153", ""},
                                      {"information.free_bytes_taken_by_2097153_and_back", "yes"},
                                      {"information.free_bytes_taken_by_67108864", ""},
                                      {"information.free_bytes_taken_by_67108864_and_back", "yes"},
                                      {"information.without_free", "ok"},
                                      {"information.without_total", "ok"}},
                                     run_information});

}  // namespace
}  // namespace probe
