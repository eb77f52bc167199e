// What cuPointerGetAttribute answers for every kind of pointer: base, interior, one past the end, freed. Values are
// given relative to the block, so that they can be compared between machines.
#include <cstring>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

struct Attribute {
  const char* name;
  CUpointer_attribute attribute;
};

constexpr Attribute kAttributes[] = {
    {"context", CU_POINTER_ATTRIBUTE_CONTEXT},
    {"memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {"device_pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
    {"host_pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER},
    {"is_managed", CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {"device_ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {"range_start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
    {"range_size", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {"mapped", CU_POINTER_ATTRIBUTE_MAPPED},
    {"ipc_capable", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"sync_memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
    {"buffer_id", CU_POINTER_ATTRIBUTE_BUFFER_ID},
    {"mempool", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
};
constexpr size_t kAttributeCount = sizeof kAttributes / sizeof kAttributes[0];

constexpr size_t kBytes = 10000;

// "base+N" for an address in the block, its distance otherwise unsaid.
std::string relative(uint64_t value, uint64_t base) {
  if (value == 0) return "null";
  if (value >= base && value <= base + kBytes) return "base+" + std::to_string(value - base);
  return "elsewhere";
}

std::string text_of(const Attribute& asked, uint64_t value, uint64_t base, CUcontext context) {
  switch (asked.attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return value == 0 ? "null" : value == reinterpret_cast<uint64_t>(context) ? "the context" : "another";
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return (value & 0xffffffffu) == CU_MEMORYTYPE_HOST     ? "host"
             : (value & 0xffffffffu) == CU_MEMORYTYPE_DEVICE ? "device"
                                                             : std::to_string(value & 0xffffffffu);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return relative(value, base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return std::to_string(value);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return std::to_string(static_cast<int>(value));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return value == 0 ? "zero" : "some";
    default:
      return yes_or_no((value & 0xff) != 0);
  }
}

std::string rule_name(const char* pointer, const Attribute& asked) {
  return std::string("attribute.") + pointer + "." + asked.name;
}

void measure(const char* pointer_name, CUdeviceptr pointer, uint64_t base, CUcontext context) {
  for (const Attribute& asked : kAttributes) {
    uint64_t value = 0;
    const CUresult result = driver().cuPointerGetAttribute(&value, asked.attribute, pointer);
    answer(rule_name(pointer_name, asked),
           result == CUDA_SUCCESS ? text_of(asked, value, base, context) : name_of(result));
  }
}

void run_device() {
  const CUcontext context = open_device();
  const CUdeviceptr block = allocate(kBytes);
  measure("device_base", block, block, context);
  measure("device_interior", block + 1000, block, context);
  measure("device_past_the_end", block + kBytes, block, context);
  PROBE_MUST(driver().cuMemFree(block));
  measure("device_freed", block, block, context);
}

void run_host() {
  const CUcontext context = open_device();
  void* const block = allocate_host(kBytes);
  const auto address = reinterpret_cast<CUdeviceptr>(block);
  measure("pinned_base", address, address, context);
  measure("pinned_interior", address + 1000, address, context);
  PROBE_MUST(driver().cuMemFreeHost(block));
  measure("pinned_freed", address, address, context);
  static char pageable[kBytes];
  measure("pageable", reinterpret_cast<CUdeviceptr>(pageable), reinterpret_cast<CUdeviceptr>(pageable), context);
}

void run_other_kinds() {
  const CUcontext context = open_device();
  CUdeviceptr managed = 0, pooled = 0;
  const CUstream stream = create_stream();
  PROBE_MUST(driver().cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  measure("managed_base", managed, managed, context);
  PROBE_MUST(driver().cuMemAllocAsync(&pooled, kBytes, stream));
  measure("pooled_base", pooled, pooled, context);
}

unsigned long long buffer_id(CUdeviceptr pointer) {
  unsigned long long identity = 0;
  PROBE_MUST(driver().cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
  return identity;
}

void run_identity() {
  open_device();
  const CUdeviceptr first = allocate(kBytes), second = allocate(kBytes);
  const unsigned long long first_id = buffer_id(first);
  answer("buffer_id.two_blocks_differ", yes_or_no(first_id != buffer_id(second)));
  answer("buffer_id.interior_is_the_same", yes_or_no(first_id == buffer_id(first + 1000)));
  PROBE_MUST(driver().cuMemFree(first));
  CUdeviceptr again = 0;
  bool repeated = false, same_address = false;
  for (int attempt = 0; attempt < 16; ++attempt) {
    again = allocate(kBytes);
    same_address |= again == first;
    repeated |= buffer_id(again) == first_id;
    if (again == first) break;
  }
  answer("buffer_id.address_came_again", yes_or_no(same_address));
  answer("buffer_id.given_again", yes_or_no(repeated));
  unsigned on = 1;
  answer("sync_memops.set", name_of(driver().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second)));
  answer("sync_memops.set_on_interior",
         name_of(driver().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second + 1000)));
  unsigned value = 0;
  PROBE_MUST(driver().cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, second));
  answer("sync_memops.reads_back", yes_or_no(value != 0));
  PROBE_MUST(driver().cuMemFree(second));
  const CUdeviceptr successor = allocate(kBytes);
  PROBE_MUST(driver().cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, successor));
  answer("sync_memops.on_a_successor", yes_or_no(value != 0));
  answer("attribute.without_a_context", [&] {
    leave_contexts();
    unsigned long long identity = 0;
    return name_of(driver().cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, successor));
  }());
}

// One row per kind of pointer, in the order of kAttributes.
struct Assumed {
  const char* pointer;
  const char* values[kAttributeCount];
};

std::vector<Rule> rules_of(const std::vector<Assumed>& rows) {
  std::vector<Rule> all;
  for (const Assumed& row : rows) {
    for (size_t index = 0; index < kAttributeCount; ++index) {
      all.push_back({rule_name(row.pointer, kAttributes[index]), row.values[index]});
    }
  }
  return all;
}

// Memory that the driver does not know: not even whether it is mapped can be asked.
Assumed unknown(const char* pointer) {
  Assumed row{pointer, {}};
  for (const char*& value : row.values) value = "invalid_value";
  return row;
}

const Registration device_case({"attributes_device", "pointer attributes of device memory", 20,
                                rules_of({{"device_base",
                                           {"the context", "device", "base+0", "invalid_value", "no", "0", "base+0",
                                            "10000", "yes", "yes", "no", "some", "zero"}},
                                          {"device_interior",
                                           {"the context", "device", "base+1000", "invalid_value", "no", "0", "base+0",
                                            "10000", "yes", "yes", "no", "some", "zero"}},
                                          unknown("device_past_the_end"),
                                          unknown("device_freed")}),
                                run_device});
const Registration host_case({"attributes_host", "pointer attributes of host memory", 20,
                              rules_of({{"pinned_base",
                                         {"the context", "host", "base+0", "base+0", "no", "0", "base+0", "10000",
                                          "yes", "no", "no", "some", "zero"}},
                                        {"pinned_interior",
                                         {"the context", "host", "base+1000", "base+1000", "no", "0", "base+0", "10000",
                                          "yes", "no", "no", "some", "zero"}},
                                        unknown("pinned_freed"),
                                        unknown("pageable")}),
                              run_host});
const Registration other_case({"attributes_other", "pointer attributes of managed and pooled memory", 20,
                               rules_of({{"managed_base",
                                          {"the context", "device", "base+0", "base+0", "yes", "0", "base+0", "10000",
                                           "yes", "no", "yes", "some", "zero"}},
                                         {"pooled_base",
                                          {"null", "device", "base+0", "invalid_value", "no", "0", "base+0", "10000",
                                           "yes", "no", "no", "some", "some"}}}),
                               run_other_kinds});
const Registration identity_case({"buffer_identity",
                                  "buffer identities and marks on blocks",
                                  20,
                                  {{"buffer_id.two_blocks_differ", "yes"},
                                   {"buffer_id.interior_is_the_same", "yes"},
                                   {"buffer_id.address_came_again", ""},
                                   {"buffer_id.given_again", "no"},
                                   {"sync_memops.set", "ok"},
                                   {"sync_memops.set_on_interior", "ok"},
                                   {"sync_memops.reads_back", "yes"},
                                   {"sync_memops.on_a_successor", "no"},
                                   {"attribute.without_a_context", "ok"}},
                                  run_identity});

}  // namespace
}  // namespace probe
