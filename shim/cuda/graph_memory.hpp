// Memory of graphs. An allocation node has its address from the moment that it is made, and counts as an allocation
// from then on, until the same graph has a free node for it. Where it has none, a launch makes the memory, which stays
// until the program frees it, even after the graph is gone. The next launch makes it again [CUDA programming guide,
// graph memory nodes]. The driver itself says how much memory it holds for graphs.
#pragma once
#include <utility>

#include "shim/cuda/tracked.hpp"
#include "stats/snapshot.hpp"

namespace cistern::cuda {

struct CudaState;

class GraphMemory {
  struct Allocation {
    CUdeviceptr address;
    Tracked memory;
  };
  struct Node {
    CUgraph graph;
    Tracked memory;
    bool freed_inside = false;  // by a node of the same graph
    bool launched = false;
    bool captured = false;  // by a capture that goes on
  };

 public:
  // A node of the graph allocates, which track() has accounted already, or frees. `captured`: a capture made it.
  void allocates(CudaState& s, CUgraph graph, CUdeviceptr address, bool captured);
  void frees(CudaState& s, CUgraph graph, CUdeviceptr address);
  // A capture has ended well, and counts as one still. The nodes that are left over when no stream captures any more
  // were captured in vain, and belong to no graph.
  void captured(CUgraph graph);
  void forget_captured_in_vain(CudaState& s);

  void instantiated(CUgraphExec executable, CUgraph graph);
  void launched(CudaState& s, CUgraphExec executable);

  // The allocations that a launch leaves behind, and those from before that it frees.
  struct Executable {
    Vector<Allocation> left;
    Vector<CUdeviceptr> freed;
  };
  // The memory nodes of a graph.
  struct Graph {
    Vector<std::pair<CUdeviceptr, Node>> nodes;
    Vector<CUdeviceptr> freed;
    Vector<Allocation> never_launched;
  };
  // Around the driver's call that ends one, since its handle and addresses may be reused immediately. If the driver
  // refused to end it, it is put back. Memory of a graph that was never launched is accounted as gone.
  Executable take(CUgraphExec executable);
  void put_back(CUgraphExec executable, Executable&& taken);
  Graph take(CudaState& s, CUgraph graph);
  void put_back(CudaState& s, CUgraph graph, Graph&& taken);
  static void gone(CudaState& s, const Graph& taken);

  // Asks the driver what it holds for graphs; not while a stream captures.
  void sample(CudaState& s, int device);
  std::optional<GraphMemoryFigures> figures(int device) const;

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_in_child();

 private:
  struct OfDevice {
    std::atomic<std::uint64_t> asked_at_ns{0}, used_bytes{0}, used_peak_bytes{0}, reserved_bytes{0},
        reserved_peak_bytes{0};
  };
  void sample_all(CudaState& s);

  Lock lock_;
  Map<CUdeviceptr, Node> nodes_;                  // the nodes of graphs that exist
  Map<CUgraph, Vector<CUdeviceptr>> freed_;       // by their nodes, what other graphs allocate
  Map<CUgraphExec, Executable> executables_;      // those that leave or free something
  std::atomic<std::uint64_t> devices_in_use_{0};  // a bit for each that ever had a node
  OfDevice devices_[kDevicesMax];
};

// The graph that a call on this stream has become a node of; null: it is none, or which one cannot be told (drivers
// before CUDA 11.3, which have no memory of graphs). `per_thread`: the stream 0 is the thread's own. While a stream
// captures the driver is asked, which captures allow.
CUgraph captured_graph(CudaState& s, CUstream stream, bool per_thread);
// Whether a call on this stream may become a node of a graph: no only where that is known.
bool may_be_captured(CudaState& s, CUstream stream, bool per_thread);
// The same, and the driver would have to be asked; a context must be current then.
bool asks_if_captured(CudaState& s, CUstream stream, bool per_thread);

}  // namespace cistern::cuda
