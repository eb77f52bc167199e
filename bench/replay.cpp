// Replays lifetimes of buffers through our policies of device memory and models of others', without a GPU: see
// bench/policies/replay_loop.hpp. bench/policies.py makes tables of it.
#include "bench/policies/driver_alone.hpp"
#include "bench/policies/ranges.hpp"
#include "bench/policies/replay_loop.hpp"
#include "bench/policies/segments.hpp"
#include "bench/policies/torch_model.hpp"
#include "bench/policies/whole_blocks.hpp"

namespace {

template <class P, auto... More>
bench::MadePolicy made(bench::Device& device, bench::Order order) {
  return std::make_unique<P>(device, order, More...);
}

constexpr bench::PolicyRow kPolicies[] = {
    {"driver", made<bench::DriverAlone>},      {"blocks", made<bench::WholeBlocks>},
    {"ranges", made<bench::Ranges>},           {"segments", made<bench::Segments>},
    {"torch", made<bench::TorchModel, false>}, {"torch-expandable", made<bench::TorchModel, true>},
};

}  // namespace

int main(int count, char** arguments) { return bench::replay_main(count, arguments, kPolicies); }
