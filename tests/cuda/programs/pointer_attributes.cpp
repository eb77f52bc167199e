// What cudaPointerGetAttributes says of pointers of all kinds: at the start of a block, inside, behind its end, and
// after its free.
#include "../program.hpp"

static void show(const char* what, const void* pointer) {
  cudaPointerAttributes attributes{};
  const cudaError_t code = cudaPointerGetAttributes(&attributes, pointer);
  forget_error();
  say("%s: %s, type %d, device %d, on the device %s, on the host %s", what, name_of(code),
      static_cast<int>(attributes.type), attributes.device,
      attributes.devicePointer ? yes_no(attributes.devicePointer == pointer) : "null",
      attributes.hostPointer ? yes_no(attributes.hostPointer == pointer) : "null");
}

static void whole_life(const char* kind, char* block, size_t bytes, cudaError_t (*release)(void*)) {
  say("-- %s, %zu bytes", kind, bytes);
  show("start", block);
  show("inside", block + bytes / 2);
  show("last byte", block + bytes - 1);
  NEED(release(block));
  show("freed", block);
  show("inside freed", block + bytes / 2);
}

int main() {
  NEED(cudaFree(nullptr));
  for (int round = 0; round < 2; ++round) {
    for (size_t bytes : {512, 8192, 1 << 20, 5000000}) {
      whole_life("device", device_block<char>(bytes), bytes, cudaFree);
      whole_life("pinned", pinned_block<char>(bytes), bytes, cudaFreeHost);
      whole_life("pinned, mapped", pinned_block<char>(bytes, cudaHostAllocMapped), bytes, cudaFreeHost);
    }
    void* managed = nullptr;
    NEED(cudaMallocManaged(&managed, 8192, cudaMemAttachGlobal));
    ++made.managed;
    whole_life("managed", static_cast<char*>(managed), 8192, cudaFree);
  }
  // Alone in its neighbourhood, so that nothing lies behind it: 4 MiB and a bit is no size class of anybody.
  const size_t odd = (4u << 20) + 4096;
  char* block = device_block<char>(odd);
  show("behind the end", block + odd);
  NEED(cudaFree(block));
  int local = 0;
  show("a local", &local);
  show("null", nullptr);
  cudaPointerAttributes attributes{};
  SHOW(cudaPointerGetAttributes(nullptr, &local));
  forget_error();
  (void)attributes;
  return finish();
}
