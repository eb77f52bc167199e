// Two devices: a block belongs to the device that was current when it was made, whichever is current at its free, and
// is never given to the other.
// harness: recycles=device
#include "../program.hpp"

constexpr size_t kBytes = 1 << 20;

static int device_of(const void* block) {
  cudaPointerAttributes attributes{};
  NEED(cudaPointerGetAttributes(&attributes, block));
  return attributes.device;
}

int main() {
  int devices = 0;
  NEED(cudaGetDeviceCount(&devices));
  if (devices < 2) {
    say("one device only");  // and the pool has nothing to recycle
    return finish();
  }
  for (int round = 0; round < 4; ++round) {
    unsigned* blocks[2];
    for (int device : {0, 1}) {
      NEED(cudaSetDevice(device));
      blocks[device] = device_block(kBytes);
      fill(nullptr, blocks[device], kBytes, 10 + device);
      NEED(cudaDeviceSynchronize());  // a stream of one device is not in the order of another's
    }
    for (int device : {0, 1}) {
      say("block of device %d is on device %d and holds %s", device, device_of(blocks[device]),
          contents(blocks[device], kBytes).c_str());
    }
    SHOW(cudaMemcpyPeer(blocks[1], 1, blocks[0], 0, kBytes));
    for (int device : {0, 1}) {
      NEED(cudaSetDevice(device));
      NEED(cudaDeviceSynchronize());
    }
    say("copied between devices: %s", contents(blocks[1], kBytes).c_str());
    NEED(cudaSetDevice(round % 2));  // one of the two frees is made from the other device
    for (int device : {0, 1}) SHOW(cudaFree(blocks[device]));
    int current = -1;
    NEED(cudaGetDevice(&current));
    say("current device is still %d", current);
  }
  int can = 0;
  NEED(cudaDeviceCanAccessPeer(&can, 0, 1));
  say("peer access possible: %d", can);
  if (can) {
    NEED(cudaSetDevice(0));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    unsigned* mine = device_block(kBytes);
    NEED(cudaSetDevice(1));
    unsigned* other = device_block(kBytes);
    fill(nullptr, other, kBytes, 33);
    NEED(cudaDeviceSynchronize());
    NEED(cudaSetDevice(0));
    NEED(launch(nullptr, kBytes / 4, Copy{other, mine}));
    say("read through the peer: %s", contents(mine, kBytes).c_str());
    SHOW(cudaFree(other));
    SHOW(cudaFree(mine));
    SHOW(cudaDeviceDisablePeerAccess(1));
  }
  for (int device : {0, 1}) {
    NEED(cudaSetDevice(device));
    NEED(cudaDeviceSynchronize());
  }
  return finish();
}
