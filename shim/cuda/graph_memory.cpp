// See graph_memory.hpp.
#include "shim/cuda/graph_memory.hpp"

#include <bit>
#include <utility>

#include "shim/cuda/state.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {
namespace {

// CUgraphMem_attribute
constexpr int kUsedBytes = 0, kUsedPeakBytes = 1, kReservedBytes = 2, kReservedPeakBytes = 3;
constexpr std::uint64_t kSampleEveryNs = 100'000'000;

void forget(CudaState& s, CUdeviceptr address) {
  Tracked gone;
  if (s.account.take(as_handle(address), gone)) s.account.forget(as_handle(address), gone);
}

}  // namespace

void GraphMemory::allocates(CudaState& s, CUgraph graph, CUdeviceptr address, bool captured) {
  Node node{graph, {}};
  node.captured = captured;
  const bool tracked = s.account.with_tracked(as_handle(address), [&](const Tracked* record) {
    if (record) node.memory = *record;
    return record != nullptr;
  });
  if (!tracked) return;
  {
    Locked hold(lock_);
    nodes_.insert_or_assign(address, node);
  }
  devices_in_use_.fetch_or(std::uint64_t{1} << node.memory.device, std::memory_order_relaxed);
}

// A node of another graph frees it when that one is launched.
void GraphMemory::frees(CudaState& s, CUgraph graph, CUdeviceptr address) {
  if (!devices_in_use_.load(std::memory_order_relaxed)) return;
  {
    Locked hold(lock_);
    const auto node = nodes_.find(address);
    if (node == nodes_.end() || node->second.graph != graph) return freed_[graph].push_back(address);
    node->second.freed_inside = true;
  }
  forget(s, address);
}

void GraphMemory::captured(CUgraph graph) {
  if (!devices_in_use_.load(std::memory_order_relaxed)) return;
  Locked hold(lock_);
  for (auto& [address, node] : nodes_)
    if (node.graph == graph) node.captured = false;
}

void GraphMemory::forget_captured_in_vain(CudaState& s) {
  if (!devices_in_use_.load(std::memory_order_relaxed)) return;
  Vector<CUdeviceptr> gone;
  {
    Locked hold(lock_);
    if (s.captures.any()) return;  // a capture is one before it has nodes
    std::erase_if(nodes_, [&](const auto& entry) {
      if (entry.second.captured) gone.push_back(entry.first);
      return entry.second.captured;
    });
  }
  for (const CUdeviceptr address : gone) forget(s, address);
}

void GraphMemory::instantiated(CUgraphExec executable, CUgraph graph) {
  if (!devices_in_use_.load(std::memory_order_relaxed)) return;
  Executable made;
  Locked hold(lock_);
  for (const auto& [address, node] : nodes_)
    if (node.graph == graph && !node.freed_inside) made.left.push_back({address, node.memory});
  if (const auto freed = freed_.find(graph); freed != freed_.end()) made.freed = freed->second;
  executables_.erase(executable);
  if (!made.left.empty() || !made.freed.empty()) executables_.emplace(executable, std::move(made));
}

void GraphMemory::launched(CudaState& s, CUgraphExec executable) {
  if (!devices_in_use_.load(std::memory_order_relaxed)) [[likely]]
    return;
  Executable what;
  {
    Locked hold(lock_);
    const auto found = executables_.find(executable);
    if (found != executables_.end()) what = found->second;
    for (const Allocation& left : what.left)
      if (const auto node = nodes_.find(left.address); node != nodes_.end()) node->second.launched = true;
  }
  for (const CUdeviceptr address : what.freed) forget(s, address);
  for (const Allocation& left : what.left) {
    const void* const handle = as_handle(left.address);
    if (!s.account.is_tracked(handle)) s.account.track(handle, left.memory);
  }
  sample_all(s);
}

GraphMemory::Executable GraphMemory::take(CUgraphExec executable) {
  Executable taken;
  if (!devices_in_use_.load(std::memory_order_relaxed)) return taken;
  Locked hold(lock_);
  if (const auto found = executables_.find(executable); found != executables_.end()) {
    taken = std::move(found->second);
    executables_.erase(found);
  }
  return taken;
}

void GraphMemory::put_back(CUgraphExec executable, Executable&& taken) {
  if (taken.left.empty() && taken.freed.empty()) return;
  Locked hold(lock_);
  executables_.emplace(executable, std::move(taken));
}

GraphMemory::Graph GraphMemory::take(CudaState& s, CUgraph graph) {
  Graph taken;
  if (!devices_in_use_.load(std::memory_order_relaxed)) return taken;
  {
    Locked hold(lock_);
    std::erase_if(nodes_, [&](const auto& entry) {
      if (entry.second.graph == graph) taken.nodes.push_back(entry);
      return entry.second.graph == graph;
    });
    if (const auto freed = freed_.find(graph); freed != freed_.end()) {
      taken.freed = std::move(freed->second);
      freed_.erase(freed);
    }
  }
  for (const auto& [address, node] : taken.nodes)
    if (Tracked memory; !node.launched && !node.freed_inside && s.account.take(as_handle(address), memory))
      taken.never_launched.push_back({address, memory});
  return taken;
}

void GraphMemory::put_back(CudaState& s, CUgraph graph, Graph&& taken) {
  for (const Allocation& one : taken.never_launched) s.account.restore(as_handle(one.address), one.memory);
  if (taken.nodes.empty() && taken.freed.empty()) return;
  Locked hold(lock_);
  nodes_.insert(taken.nodes.begin(), taken.nodes.end());
  if (!taken.freed.empty()) freed_.emplace(graph, std::move(taken.freed));
}

void GraphMemory::gone(CudaState& s, const Graph& taken) {
  for (const Allocation& one : taken.never_launched) s.account.forget(as_handle(one.address), one.memory);
}

void GraphMemory::sample_all(CudaState& s) {
  const std::uint64_t now = coarse_nanoseconds_since_start();
  for (std::uint64_t left = devices_in_use_.load(std::memory_order_relaxed); left; left &= left - 1) {
    const int device = std::countr_zero(left);
    const std::uint64_t last = devices_[device].asked_at_ns.load(std::memory_order_relaxed);
    if (!last || now - last >= kSampleEveryNs) sample(s, device);
  }
}

void GraphMemory::sample(CudaState& s, int device) {
  if (device < 0 || device >= kDevicesMax) return;
  const Through gate(s.gate);
  if (!gate) return;
  std::uint64_t used = 0, used_peak = 0, reserved = 0, reserved_peak = 0;
  for (const auto& [attribute, value] : {std::pair{kUsedBytes, &used},
                                         {kUsedPeakBytes, &used_peak},
                                         {kReservedBytes, &reserved},
                                         {kReservedPeakBytes, &reserved_peak}})
    if (driver().cuDeviceGetGraphMemAttribute(device, attribute, value) != kSuccess) return;
  OfDevice& of = devices_[device];
  of.asked_at_ns.store(coarse_nanoseconds_since_start() + 1, std::memory_order_relaxed);
  of.used_bytes.store(used, std::memory_order_relaxed);
  of.reserved_bytes.store(reserved, std::memory_order_relaxed);
  raise_peak(of.used_peak_bytes, used_peak);  // the program may have set the driver's back
  raise_peak(of.reserved_peak_bytes, reserved_peak);
}

std::optional<GraphMemoryFigures> GraphMemory::figures(int device) const {
  const OfDevice& of = devices_[device];
  const std::uint64_t at_ns = read(of.asked_at_ns);
  if (!at_ns) return std::nullopt;
  return GraphMemoryFigures{read(of.used_bytes), read(of.used_peak_bytes), read(of.reserved_bytes),
                            read(of.reserved_peak_bytes), static_cast<double>(at_ns) * 1e-9};
}

void GraphMemory::forget_in_child() {
  nodes_.clear();
  freed_.clear();
  executables_.clear();
  for (OfDevice& of : devices_)
    of.asked_at_ns = of.used_bytes = of.used_peak_bytes = of.reserved_bytes = of.reserved_peak_bytes = 0;
}

namespace {
// Asked of it while a stream captures that waits for it, the driver has an error.
bool is_legacy(CUstream stream, bool per_thread) { return stream == legacy_stream() || (!stream && !per_thread); }
CUstream by_name(CUstream stream) { return stream ? stream : per_thread_stream(); }
}  // namespace

CUgraph captured_graph(CudaState& s, CUstream stream, bool per_thread) {
  if (!s.captures.any() || in_host_function || is_legacy(stream, per_thread)) return nullptr;
  int status = kCaptureStatusNone;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUresult answer = driver().cuStreamGetCaptureInfo_v2(by_name(stream), &status, &id, &graph, nullptr, nullptr);
  return answer == kSuccess && status == kCaptureStatusActive ? graph : nullptr;
}

// A program that links the library shows no capture.
bool asks_if_captured(CudaState& s, CUstream stream, bool per_thread) {
  if (is_legacy(stream, per_thread)) return false;
  return preloaded.load(std::memory_order_relaxed) ? s.captures.any() : bool(driver().cuStreamIsCapturing);
}

bool may_be_captured(CudaState& s, CUstream stream, bool per_thread) {
  if (!asks_if_captured(s, stream, per_thread)) return false;
  int status = kCaptureStatusNone;
  if (in_host_function || driver().cuStreamIsCapturing(by_name(stream), &status) != kSuccess) return true;
  return status != kCaptureStatusNone;
}

}  // namespace cistern::cuda
