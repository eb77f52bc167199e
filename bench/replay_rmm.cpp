// Replays lifetimes of buffers through RMM's own pool and arena, over the device that only counts: see
// bench/policies/replay_loop.hpp. Built by bench/rmm_program.py, with RMM's headers and library as PyPI has them;
// streams and events are those of the simulated driver of the tests, where all work has ended when it was recorded.
#include <cuda_runtime_api.h>

#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include "bench/policies/replay_loop.hpp"

// RMM's arena asks even where it is told its size, and the library's own would ask a driver.
namespace rmm {
std::pair<std::size_t, std::size_t> available_device_memory() { return {1 << 30, 1 << 30}; }
}  // namespace rmm

namespace {

using bench::Call;
using bench::Device;

class Upstream final : public rmm::mr::device_memory_resource {
 public:
  explicit Upstream(Device& device) : device_(device) {}

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
    if (!device_.take(Call::allocate, bytes)) throw rmm::out_of_memory("the device is full");
    return reinterpret_cast<void*>(device_.new_addresses(bytes));
  }
  void do_deallocate(void*, std::size_t bytes, rmm::cuda_stream_view) override { device_.give_back(Call::free, bytes); }
  Device& device_;
};

// The pool begins empty and doubles; where the device has less left, it takes that in parts. The arena takes the
// device's memory at its begin, and never has more.
auto make(rmm::mr::pool_memory_resource<Upstream>*, Upstream& upstream, std::size_t) {
  return std::make_unique<rmm::mr::pool_memory_resource<Upstream>>(&upstream, 0);
}
auto make(rmm::mr::arena_memory_resource<Upstream>*, Upstream& upstream, std::size_t memory) {
  return std::make_unique<rmm::mr::arena_memory_resource<Upstream>>(&upstream, memory / 256 * 256);
}

template <class Resource>
class OfRmm final : public bench::Policy {
 public:
  OfRmm(Device& device, bench::Order)
      : upstream_(device), resource_(make(static_cast<Resource*>(nullptr), upstream_, device.memory_bytes())) {}
  ~OfRmm() override {
    resource_.reset();
    for (const auto stream : streams_) cudaStreamDestroy(stream);
  }
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned stream) override {
    try {
      return reinterpret_cast<std::uint64_t>(resource_->allocate_async(bytes, real(stream)));
    } catch (const rmm::bad_alloc&) {
      return std::nullopt;
    }
  }
  void deallocate(std::uint64_t address, std::uint64_t bytes, unsigned stream) override {
    resource_->deallocate_async(reinterpret_cast<void*>(address), bytes, real(stream));
  }

 private:
  cudaStream_t real(unsigned stream) {
    while (streams_.size() <= stream)
      if (cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking) != cudaSuccess) std::abort();
    return streams_[stream];
  }
  Upstream upstream_;
  std::unique_ptr<Resource> resource_;
  std::vector<cudaStream_t> streams_;
};

template <class P>
bench::MadePolicy made(Device& device, bench::Order order) {
  return std::make_unique<P>(device, order);
}

constexpr bench::PolicyRow kPolicies[] = {{"rmm-pool", made<OfRmm<rmm::mr::pool_memory_resource<Upstream>>>},
                                          {"rmm-arena", made<OfRmm<rmm::mr::arena_memory_resource<Upstream>>>}};

}  // namespace

int main(int count, char** arguments) { return bench::replay_main(count, arguments, kPolicies); }
