// Memory shared between processes: handles of base and interior pointers, of small neighbours and of other kinds; what
// an importing process gets. Every word of a block holds its own offset, so the importer sees where its pointer lies.
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

#include "driver.hpp"
#include "probe.hpp"

extern char** environ;

namespace probe {
namespace {

constexpr size_t kBytes = 4096;
constexpr uint32_t kMark = 0xA0000000u;
constexpr uint32_t kWritten = 0x12345678u;

std::string hexadecimal(const CUipcMemHandle& handle) {
  std::string text;
  for (unsigned char byte : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

CUipcMemHandle handle_of_text(const std::string& text) {
  CUipcMemHandle handle{};
  for (size_t index = 0; index < sizeof handle.reserved && 2 * index + 1 < text.size(); ++index) {
    unsigned byte = 0;
    std::sscanf(text.c_str() + 2 * index, "%2x", &byte);
    handle.reserved[index] = static_cast<char>(byte);
  }
  return handle;
}

CUdeviceptr marked_block(uint32_t mark) {
  const CUdeviceptr block = allocate(kBytes);
  uint32_t words[kBytes / 4];
  for (uint32_t index = 0; index < kBytes / 4; ++index) words[index] = mark + 4 * index;
  PROBE_MUST(driver().cuMemcpyHtoD(block, words, kBytes));
  return block;
}

// Where the pointer lies in a block that was marked so, by the word it points to.
std::string place(CUdeviceptr pointer, uint32_t mark) {
  uint32_t word = 0;
  const CUresult result = driver().cuMemcpyDtoH(&word, pointer, sizeof word);
  if (result != CUDA_SUCCESS) return "unreadable: " + name_of(result);
  return word - mark < kBytes ? "block+" + std::to_string(word - mark) : "elsewhere";
}

std::string imported_range(CUdeviceptr pointer) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult result = driver().cuMemGetAddressRange(&base, &bytes, pointer);
  if (result != CUDA_SUCCESS) return name_of(result);
  return "pointer-" + std::to_string(pointer - base) + " size " + std::to_string(bytes);
}

void import_handles() {
  const std::vector<std::string>& given = arguments();
  open_device();
  const auto open = [](CUdeviceptr* pointer, const std::string& text) {
    return driver().cuIpcOpenMemHandle(pointer, handle_of_text(text), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  CUdeviceptr first = 0, again = 0, interior = 0, second = 0, freed = 0;
  const CUresult result = open(&first, given[1]);
  answer("ipc.open", name_of(result));
  if (result != CUDA_SUCCESS) return;
  answer("ipc.opened_pointer_lies_at", place(first, kMark));
  answer("ipc.opened_range", imported_range(first));
  const CUresult result_again = open(&again, given[1]);
  answer("ipc.open_twice", result_again == CUDA_SUCCESS ? again == first ? "ok same pointer" : "ok another pointer"
                                                        : name_of(result_again));
  const CUresult result_interior = open(&interior, given[2]);
  answer("ipc.opened_from_interior_lies_at",
         result_interior == CUDA_SUCCESS ? place(interior, kMark) : name_of(result_interior));
  const CUresult result_second = open(&second, given[3]);
  answer("ipc.opened_neighbour_lies_at",
         result_second == CUDA_SUCCESS ? place(second, kMark + 0x01000000u) : name_of(result_second));
  answer("ipc.open_of_a_freed_block", name_of(open(&freed, given[4])));
  answer("ipc.free_of_an_import", name_of(driver().cuMemFree(first)));
  PROBE_MUST(driver().cuMemsetD32(first, kWritten, 1));
  PROBE_MUST(driver().cuCtxSynchronize());
  answer("ipc.close", name_of(driver().cuIpcCloseMemHandle(first)));
}

std::string exported(CUdeviceptr pointer) {
  CUipcMemHandle handle{};
  return name_of(driver().cuIpcGetMemHandle(&handle, pointer));
}

void export_handles() {
  open_device();
  const CUdeviceptr block = marked_block(kMark), neighbour = marked_block(kMark + 0x01000000u);
  const CUdeviceptr doomed = allocate(kBytes);
  CUipcMemHandle of_block{}, repeated{}, of_interior{}, of_neighbour{}, of_doomed{};
  PROBE_MUST(driver().cuIpcGetMemHandle(&of_block, block));
  PROBE_MUST(driver().cuIpcGetMemHandle(&repeated, block));
  PROBE_MUST(driver().cuIpcGetMemHandle(&of_neighbour, neighbour));
  PROBE_MUST(driver().cuIpcGetMemHandle(&of_doomed, doomed));
  const auto same = [&](const CUipcMemHandle& handle) {
    return yes_or_no(std::memcmp(&handle, &of_block, sizeof handle) == 0);
  };
  answer("ipc.get_of_interior", name_of(driver().cuIpcGetMemHandle(&of_interior, block + 1024)));
  answer("ipc.same_handle_when_asked_twice", same(repeated));
  answer("ipc.interior_handle_is_the_same", same(of_interior));
  answer("ipc.neighbour_handle_is_the_same", same(of_neighbour));
  PROBE_MUST(driver().cuMemFree(doomed));
  answer("ipc.get_of_freed", exported(doomed));
  answer("ipc.get_of_pinned", exported(reinterpret_cast<CUdeviceptr>(allocate_host(kBytes))));
  CUdeviceptr managed = 0, pooled = 0;
  PROBE_MUST(driver().cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  answer("ipc.get_of_managed", exported(managed));
  PROBE_MUST(driver().cuMemAllocAsync(&pooled, kBytes, nullptr));
  answer("ipc.get_of_pooled", exported(pooled));
  CUdeviceptr here = 0;
  answer("ipc.open_in_the_exporting_process",
         name_of(driver().cuIpcOpenMemHandle(&here, of_block, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)));
  PROBE_MUST(driver().cuCtxSynchronize());

  const std::string texts[] = {hexadecimal(of_block), hexadecimal(of_interior), hexadecimal(of_neighbour),
                               hexadecimal(of_doomed)};
  const char* values[] = {"probe",          "ipc",  "import", texts[0].c_str(), texts[1].c_str(), texts[2].c_str(),
                          texts[3].c_str(), nullptr};
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(values), environ) == 0) {
    waitpid(child, &status, 0);
  }
  answer("ipc.importer_ended", status == 0 ? "normally" : "status " + std::to_string(status));
  uint32_t word = 0;
  PROBE_MUST(driver().cuMemcpyDtoH(&word, block, sizeof word));
  answer("ipc.importers_write_is_seen", yes_or_no(word == kWritten));
  answer("ipc.free_after_export", name_of(driver().cuMemFree(block)));
}

void run() {
  if (!arguments().empty() && arguments()[0] == "import") {
    import_handles();
  } else {
    export_handles();
  }
}

const Registration ipc_case({"ipc",
                             "memory shared with another process",
                             40,
                             {{"ipc.get_of_interior", "ok"},
                              {"ipc.same_handle_when_asked_twice", "yes"},
                              {"ipc.interior_handle_is_the_same", "yes"},
                              {"ipc.neighbour_handle_is_the_same", "no"},
                              {"ipc.get_of_freed", "invalid_value"},
                              {"ipc.get_of_pinned", "invalid_value"},
                              {"ipc.get_of_managed", "invalid_value"},
                              {"ipc.get_of_pooled", "invalid_value"},
                              {"ipc.open_in_the_exporting_process", "invalid_context"},
                              {"ipc.open", "ok"},
                              {"ipc.opened_pointer_lies_at", "block+0"},
                              {"ipc.opened_range", "pointer-0 size 4096"},
                              {"ipc.open_twice", "ok same pointer"},
                              {"ipc.opened_from_interior_lies_at", "block+0"},
                              {"ipc.opened_neighbour_lies_at", "block+0"},
                              {"ipc.open_of_a_freed_block", "ok"},
                              {"ipc.free_of_an_import", "invalid_value"},
                              {"ipc.close", "ok"},
                              {"ipc.importer_ended", "normally"},
                              {"ipc.importers_write_is_seen", "yes"},
                              {"ipc.free_after_export", "ok"}},
                             run});

}  // namespace
}  // namespace probe
