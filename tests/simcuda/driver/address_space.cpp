// See address_space.hpp.
#include "tests/simcuda/driver/address_space.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>

#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/virtual_memory.hpp"

namespace simcuda {
namespace {

// [assumed] 16 TiB are more than any program reserves. A limit of the process or a sanitizer may leave less.
constexpr size_t kWindowBytes = size_t{16} << 40, kWindowBytesMin = size_t{1} << 30;

constinit std::atomic<uintptr_t> window_begin{0}, window_end{0};

// The first reservation opens it. It is never destroyed, because a program may free addresses late.
AddressWindow& window() {
  static AddressWindow& only = *new AddressWindow;
  return only;
}

bool open_window() {
  if (window_end) return true;
  size_t bytes = kWindowBytes;
  while (!window().reserve(bytes))
    if ((bytes /= 2) < kWindowBytesMin) return false;
  window_begin = window().begin();
  window_end = window_begin + bytes;
  return true;
}

std::map<uintptr_t, size_t>& reservations() {
  static auto& all = *new std::map<uintptr_t, size_t>;
  return all;
}

CUresult reserve(CUdeviceptr* pointer, size_t bytes, size_t alignment) {
  Locked lock = lock_driver();
  const auto limit = static_cast<size_t>(settings.vmm_reserve_max.load());
  if ((limit && bytes > limit) || !open_window()) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t begin = window().take(bytes, alignment);
  if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations().emplace(begin, bytes);
  *pointer = begin;
  return CUDA_SUCCESS;
}

}  // namespace

Reservation reservation_of(Locked&, uintptr_t address) {
  const auto after = reservations().upper_bound(address);
  if (after == reservations().begin()) return {};
  const auto& [begin, bytes] = *std::prev(after);
  return address - begin < bytes ? Reservation{begin, bytes} : Reservation{};
}

bool is_virtual_address(uintptr_t address) { return address >= window_begin && address < window_end; }

}  // namespace simcuda

using namespace simcuda;

// [measured] The size is a multiple of the granularity of memory (580 on an H100). [documented] The alignment is a
// power of two or 0. Here 0 means the granularity [assumed]. The driver need not grant the wish for an address
// [documented]: this one does not.
extern "C" CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr wish,
                                        unsigned long long flags) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  if (!pointer || !bytes || bytes % granularity() || wish % kHostPage || flags || (alignment & (alignment - 1)))
    return CUDA_ERROR_INVALID_VALUE;
  catch_illegal_addresses();
  return reserve(pointer, bytes, std::max(alignment, granularity()));
}

// [documented] The whole reservation, with nothing mapped in it.
extern "C" CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  Locked lock = lock_driver();
  const auto found = reservations().find(to_address(pointer));
  if (found == reservations().end() || found->second != bytes || driver().allocations.overlaps(pointer, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  reservations().erase(found);
  window().give(to_address(pointer), bytes);
  return CUDA_SUCCESS;
}
