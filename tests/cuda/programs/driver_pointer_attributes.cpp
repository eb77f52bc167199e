// All pointer attributes of all kinds of pointers; several at once; ids that differ between successive allocations even
// when the address is the same; setting SYNC_MEMOPS.
#include "../driver_program.hpp"

constexpr size_t kBytes = 8192;

static unsigned long long buffer_id(CUdeviceptr block) {
  unsigned long long id = 0;
  NEED(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
  return id;
}

static void show(const char* what, CUdeviceptr start, CUdeviceptr pointer, CUcontext own,
                 bool is_device_block = false) {
  say("-- %s", what);
  struct Plain {
    const char* name;
    CUpointer_attribute attribute;
    size_t bytes;
  };
  for (const Plain& plain :
       {Plain{"memory type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4}, Plain{"managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, 4},
        Plain{"device", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 4}, Plain{"mapped", CU_POINTER_ATTRIBUTE_MAPPED, 4},
        Plain{"sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4},
        Plain{"handle types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 8},
        Plain{"range size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, 8}}) {
    unsigned long long value = 0;
    const CUresult code = cuPointerGetAttribute(&value, plain.attribute, pointer);
    if (plain.bytes == 4) value &= 0xffffffff;
    say("%s: %s %llu", plain.name, name_of(code), value);
  }
  // Virtual memory is not capable of it, so memory of a range is not.
  int shares = 0;
  const CUresult asked = cuPointerGetAttribute(&shares, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer);
  say("IPC capable as it should be: %s %s", name_of(asked), yes_no(shares == (is_device_block && !in_ranges())));
  struct Address {
    const char* name;
    CUpointer_attribute attribute;
    unsigned long long expected;
  };
  for (const Address& address :
       {Address{"context is ours", CU_POINTER_ATTRIBUTE_CONTEXT, reinterpret_cast<unsigned long long>(own)},
        Address{"device pointer is the pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer},
        Address{"host pointer is the pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer},
        Address{"range starts at the block", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, start},
        Address{"pool is none", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 0}}) {
    unsigned long long value = 0;
    const CUresult code = cuPointerGetAttribute(&value, address.attribute, pointer);
    say("%s: %s %s", address.name, name_of(code), yes_no(value == address.expected));
  }
  // A driver maps small blocks together: where that mapping begins is not the program's affair.
  unsigned long long first = 0, bytes = 0;
  const CUresult code = cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, pointer);
  say("mapping: %s %s", name_of(code),
      name_of(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, pointer)));
  if (code == CUDA_SUCCESS) say("it has the address: %s", yes_no(pointer - first < bytes));
}

static void several(CUdeviceptr start, CUdeviceptr pointer) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  unsigned type = 77;
  CUdeviceptr range_start = 77;
  size_t range_size = 77;
  int device = 77;
  unsigned long long id = 77;
  void* values[] = {&type, &range_start, &range_size, &device, &id};
  const CUresult code = cuPointerGetAttributes(5, attributes, values, pointer);
  say("several: %s, type %u, start %s, size %zu, device %d, has an id %s", name_of(code), type,
      yes_no(range_start == start), range_size, device, yes_no(id != 0));
}

static void ids() {
  std::vector<unsigned long long> seen;
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr block = device_block(kBytes);
    seen.push_back(buffer_id(block));
    say("inside, the same id: %s", yes_no(buffer_id(block + kBytes - 1) == seen.back()));
    say("asked again, the same id: %s", yes_no(buffer_id(block) == seen.back()));
    NEED(cuMemFree(block));
  }
  bool differ = true;
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t k = 0; k < i; ++k) differ &= seen[i] != seen[k];
  }
  say("all ids differ: %s", yes_no(differ));
}

static void sync_memops() {
  int on = 1;
  CUdeviceptr block = device_block(kBytes);
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
  int seen = 0;
  NEED(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
  say("marked: %d", seen);
  NEED(cuMemFree(block));
  for (int round = 0; round < 6; ++round) {
    CUdeviceptr next = device_block(kBytes);
    seen = 1;
    NEED(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, next));
    say("a later block is marked: %d", seen);
    NEED(cuMemFree(next));
  }
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4096));
}

int main() {
  CUcontext own = primary_context();
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr block = device_block(kBytes - 100);
    show("device", block, block, own, true);
    show("inside device", block, block + 4000, own, true);
    several(block, block + 10);
    NEED(cuMemFree(block));
    show("freed device", block, block, own);
    several(block, block);
    void *neighbour = nullptr, *pinned = nullptr;
    NEED(cuMemHostAlloc(&neighbour, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    NEED(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    made.pinned += 2;
    const CUdeviceptr host = reinterpret_cast<CUdeviceptr>(pinned);
    show("pinned", host, host, own);
    show("inside pinned", host, host + 100, own);
    NEED(cuMemFreeHost(pinned));
    show("freed pinned", host, host, own);
    NEED(cuMemFreeHost(neighbour));
    CUdeviceptr managed = 0;
    NEED(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
    ++made.managed;
    show("managed", managed, managed, own);
    NEED(cuMemFree(managed));
  }
  show("nothing", 0, 4096, own);
  ids();
  sync_memops();
  return finish();
}
