// Nodes that a program adds to a graph by hand.
#include "kernels.hpp"
#include "shapes.hpp"
#include "state.hpp"

using namespace simcuda_runtime;

static_assert(sizeof(cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
static_assert(sizeof(cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS));

extern "C" {

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
  return in_context([&] { return DRIVER(cuGraphAddEmptyNode, 10000)(node, graph, dependencies, count); });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                 size_t count, const cudaHostNodeParams* parameters) {
  return in_context([&] {
    return DRIVER(cuGraphAddHostNode, 10000)(node, graph, dependencies, count,
                                             reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(parameters));
  });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaKernelNodeParams* parameters) {
  if (!parameters) return record(cudaErrorInvalidValue);
  return in_context([&] {
    return with_function(parameters->func, [&](CUfunction function) {
      const dim3 &grid = parameters->gridDim, &block = parameters->blockDim;
      CUDA_KERNEL_NODE_PARAMS kernel{};
      kernel.func = function;
      kernel.gridDimX = grid.x, kernel.gridDimY = grid.y, kernel.gridDimZ = grid.z;
      kernel.blockDimX = block.x, kernel.blockDimY = block.y, kernel.blockDimZ = block.z;
      kernel.sharedMemBytes = parameters->sharedMemBytes;
      kernel.kernelParams = parameters->kernelParams;
      kernel.extra = parameters->extra;
      return DRIVER(cuGraphAddKernelNode, 12000)(node, graph, dependencies, count, &kernel);
    });
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemsetParams* parameters) {
  if (!parameters) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    CUDA_MEMSET_NODE_PARAMS fill{address_of(parameters->dst), parameters->pitch, parameters->value,
                                 parameters->elementSize,     parameters->width, parameters->height};
    CUcontext context = nullptr;
    if (CUresult result = DRIVER(cuCtxGetCurrent, 4000)(&context)) return result;
    return DRIVER(cuGraphAddMemsetNode, 10000)(node, graph, dependencies, count, &fill, context);
  });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, cudaMemAllocNodeParams* parameters) {
  return in_context([&] {
    return DRIVER(cuGraphAddMemAllocNode, 11040)(node, graph, dependencies, count,
                                                 reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(parameters));
  });
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                    size_t count, void* pointer) {
  return in_context(
      [&] { return DRIVER(cuGraphAddMemFreeNode, 11040)(node, graph, dependencies, count, address_of(pointer)); });
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* parameters) {
  return in_context([&] {
    return DRIVER(cuGraphMemAllocNodeGetParams, 11040)(node, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(parameters));
  });
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  return in_context(
      [&] { return DRIVER(cuGraphMemFreeNodeGetParams, 11040)(node, static_cast<CUdeviceptr*>(pointer)); });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                       size_t count, cudaGraph_t child) {
  return in_context([&] { return DRIVER(cuGraphAddChildGraphNode, 10000)(node, graph, dependencies, count, child); });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemcpy3DParms* box) {
  if (!box || !kind_is_valid(box->kind)) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    CUDA_MEMCPY3D shape{};
    CUcontext context = nullptr;
    if (CUresult result = describe_box(*box, &shape)) return result;
    if (CUresult result = DRIVER(cuCtxGetCurrent, 4000)(&context)) return result;
    return DRIVER(cuGraphAddMemcpyNode, 10000)(node, graph, dependencies, count, &shape, context);
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms row{};
  row.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  row.dstPtr = {to, bytes, bytes, 1};
  row.extent = {bytes, 1, 1};
  row.kind = kind;
  return cudaGraphAddMemcpyNode(node, graph, dependencies, count, &row);
}

}  // extern "C"
