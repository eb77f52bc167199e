// A device block that was freed is no memory, whoever keeps it: every copy, memset, prefetch and advice that names it,
// at its start and inside, gets the native error, and so does one end of a copy whose other end is alive. A copy of no
// bytes names no memory. The block that is made next is unharmed.
// harness: recycles=device
// harness: says=cistern: cuMemcpyHtoD_v2\(0x\w+\): .* already freed; .*, freed at free_it.*, used at linear.*
// harness: says=cistern: cuMemsetD8_v2\(0x\w+\): .* already freed; .*, freed at free_it.*, used at memsets.*
// harness: says=cistern: cuMemcpy3DPeer\(0x\w+\): .* already freed; .*, freed at free_it.*, used at boxes.*
// harness: says=cistern: cuMemPrefetchAsync_v2\(0x\w+\): .* already freed; .*, used at advice.*
#include "../driver_program.hpp"

static constexpr size_t kBytes = 64 * 1024, kSome = 4096;
static unsigned char host[kBytes];

[[gnu::noinline]] static void free_it(CUdeviceptr block) { NEED(cuMemFree(block)); }

[[gnu::noinline]] static void linear(CUdeviceptr gone, CUdeviceptr there, CUcontext context, CUstream stream) {
  SHOW(cuMemcpyHtoD(gone, host, kSome));
  SHOW(cuMemcpyDtoH(host, gone, kSome));
  SHOW(cuMemcpyHtoDAsync(gone, host, kSome, stream));
  SHOW(cuMemcpyDtoHAsync(host, gone, kSome, stream));
  SHOW(cuMemcpyDtoD(gone, there, kSome));
  SHOW(cuMemcpyDtoD(there, gone, kSome));
  SHOW(cuMemcpyDtoDAsync(gone, there, kSome, stream));
  SHOW(cuMemcpyDtoDAsync(there, gone, kSome, stream));
  SHOW(cuMemcpyPeer(gone, context, there, context, kSome));
  SHOW(cuMemcpyPeer(there, context, gone, context, kSome));
  SHOW(cuMemcpyPeerAsync(gone, context, there, context, kSome, stream));
  SHOW(cuMemcpyPeerAsync(there, context, gone, context, kSome, stream));
  SHOW(cuMemcpyHtoD(gone, host, 0));
  SHOW(cuMemcpyDtoHAsync(host, gone, 0, stream));
}

[[gnu::noinline]] static void arrays(CUdeviceptr gone) {
  CUDA_ARRAY_DESCRIPTOR of{};
  of.Width = kSome;
  of.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  of.NumChannels = 1;
  CUarray array = nullptr;
  NEED(cuArrayCreate(&array, &of));
  ++made.array;
  SHOW(cuMemcpyDtoA(array, 0, gone, kSome));
  SHOW(cuMemcpyAtoD(gone, array, 0, kSome));
  NEED(cuArrayDestroy(array));
}

template <class Shape>
static Shape rows(CUdeviceptr to, CUdeviceptr from) {
  Shape shape{};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = from;
  shape.dstDevice = to;
  shape.srcPitch = shape.dstPitch = 256;
  shape.dstY = 2;
  shape.WidthInBytes = 128;
  shape.Height = 8;
  return shape;
}
template <class Shape>
static Shape box(CUdeviceptr to, CUdeviceptr from) {
  auto shape = rows<Shape>(to, from);
  shape.srcHeight = shape.dstHeight = 16;
  shape.dstZ = 1;
  shape.Depth = 2;
  return shape;
}

[[gnu::noinline]] static void boxes(CUdeviceptr gone, CUdeviceptr there, CUcontext context, CUstream stream) {
  for (const bool to_it : {true, false}) {
    const CUdeviceptr to = to_it ? gone : there, from = to_it ? there : gone;
    const auto flat = rows<CUDA_MEMCPY2D>(to, from);
    SHOW(cuMemcpy2D(&flat));
    SHOW(cuMemcpy2DUnaligned(&flat));
    SHOW(cuMemcpy2DAsync(&flat, stream));
    const auto full = box<CUDA_MEMCPY3D>(to, from);
    SHOW(cuMemcpy3D(&full));
    SHOW(cuMemcpy3DAsync(&full, stream));
    auto peer = box<CUDA_MEMCPY3D_PEER>(to, from);
    peer.srcContext = peer.dstContext = context;
    SHOW(cuMemcpy3DPeer(&peer));
    SHOW(cuMemcpy3DPeerAsync(&peer, stream));
  }
  auto from_host = rows<CUDA_MEMCPY2D>(gone, 0);
  from_host.srcMemoryType = CU_MEMORYTYPE_HOST;
  from_host.srcHost = host;
  SHOW(cuMemcpy2D(&from_host));
  auto unified = rows<CUDA_MEMCPY2D>(there, there);
  SHOW(cuMemcpy2D(&unified));
}

[[gnu::noinline]] static void memsets(CUdeviceptr gone, CUstream stream) {
  SHOW(cuMemsetD8(gone, 1, kSome));
  SHOW(cuMemsetD16(gone, 1, kSome));
  SHOW(cuMemsetD32(gone, 1, kSome));
  SHOW(cuMemsetD2D8(gone, 256, 1, 128, 4));
  SHOW(cuMemsetD2D16(gone, 256, 1, 128, 4));
  SHOW(cuMemsetD2D32(gone, 512, 1, 128, 4));
  SHOW(cuMemsetD8Async(gone, 1, kSome, stream));
  SHOW(cuMemsetD16Async(gone, 1, kSome, stream));
  SHOW(cuMemsetD32Async(gone, 1, kSome, stream));
  SHOW(cuMemsetD2D8Async(gone, 256, 1, 128, 4, stream));
  SHOW(cuMemsetD2D16Async(gone, 256, 1, 128, 4, stream));
  SHOW(cuMemsetD2D32Async(gone, 512, 1, 128, 4, stream));
  SHOW(cuMemsetD8(gone, 1, 0));
}

[[gnu::noinline]] static void advice(CUdeviceptr gone, CUstream stream) {
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  SHOW(cuMemAdvise(gone, kSome, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  SHOW(cuMemPrefetchAsync(gone, kSome, here, 0, stream));
}

[[gnu::noinline]] static void captured(CUdeviceptr gone, CUdeviceptr there, CUstream stream) {
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuMemcpyDtoDAsync(there, gone, kSome, stream));
  SHOW(cuMemsetD8Async(gone, 1, kSome, stream));
  SHOW(cuMemsetD8Async(there, 2, kSome, stream));
  SHOW(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphDestroy(graph));
}

int main() {
  CUcontext context = primary_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr there = device_block(kBytes), block = device_block(kBytes);
  NEED(cuMemsetD32(there, 3, kBytes / 4));
  free_it(block);
  for (const CUdeviceptr gone : {block, block + kBytes / 2}) {
    linear(gone, there, context, stream);
    arrays(gone);
    boxes(gone, there, context, stream);
    memsets(gone, stream);
    advice(gone, stream);
    captured(gone, there, stream);
  }
  NEED(cuCtxSynchronize());
  say("the other block holds %s", contents(there, kBytes).c_str());

  const CUdeviceptr next = device_block(kBytes);
  NEED(cuMemsetD32(next, 7, kBytes / 4));
  SHOW(cuMemcpyDtoH(host, next + kSome, kSome));
  say("the next block holds %s", contents(next, kBytes).c_str());
  free_it(next);
  free_it(there);
  // Without a context that is what is wrong.
  NEED(cuCtxSetCurrent(nullptr));
  SHOW(cuMemcpyHtoD(next, host, kSome));
  SHOW(cuMemsetD8(next, 1, kSome));
  NEED(cuCtxSetCurrent(context));
  NEED(cuDevicePrimaryCtxReset(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  SHOW(cuMemcpyHtoD(next, host, kSome));
  return finish();
}
