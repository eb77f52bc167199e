// See host_misuse.hpp.
#include "shim/core/host_misuse.hpp"

#include <errno.h>
#include <spdlog/fmt/fmt.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pool/host_blocks.hpp"
#include "shim/core/host_native.hpp"
#include "shim/core/host_serving.hpp"
#include "shim/core/log.hpp"

namespace cistern::host {
namespace {

void say(const char* api, const void* pointer, std::string_view what) {
  char line[256];
  const bool ends = abort_on_misuse();
  const auto end =
      fmt::format_to_n(line, sizeof line, "{}({}): {}; {}", api, pointer, what, ends ? "aborting" : "ignored");
  warn_line({line, std::min(end.size, sizeof line)});
  if (ends) abort();
}

bool is_mapped(const void* pointer) {
  const auto page = reinterpret_cast<std::uintptr_t>(pointer) & ~(host_pool::kSystemPage - 1);
  unsigned char resident;
  return mincore(reinterpret_cast<void*>(page), host_pool::kSystemPage, &resident) == 0;
}

}  // namespace

void report_double_free(const char* api, const void* block) {
  char what[96];
  const auto end = fmt::format_to_n(what, sizeof what, "double free: this block of {} bytes is free already",
                                    host_pool::whereabouts(block).block_bytes);
  say(api, block, {what, std::min(end.size, sizeof what)});
}

void report_invalid_free(const char* api, const void* pointer) {
  const host_pool::Whereabouts where = host_pool::whereabouts(pointer);
  char what[160];
  auto end = fmt::format_to_n(what, 0, "");
  if (where.block && where.block != pointer) {
    end = fmt::format_to_n(what, sizeof what, "invalid pointer: {} bytes into the {} block of {} bytes at {}",
                           static_cast<const char*>(pointer) - static_cast<const char*>(where.block),
                           where.free ? "free" : "live", where.block_bytes, where.block);
  } else if (where.in_pool) {
    end = fmt::format_to_n(what, sizeof what,
                           "invalid pointer: in memory that no block has: freed already, or never allocated");
  } else {
    end = fmt::format_to_n(what, sizeof what, "invalid pointer: not from malloc{}",
                           is_mapped(pointer) ? "" : ", and there is no memory there");
  }
  say(api, pointer, {what, std::min(end.size, sizeof what)});
}

bool c_library_may_own(const void* pointer) {
  if (!is_mapped(pointer) || reinterpret_cast<std::uintptr_t>(pointer) % host_pool::kGranule) return false;
  if (!native().mallinfo2) return true;
  const struct mallinfo2 heap = native().mallinfo2();
  return heap.arena + heap.hblkhd > 0;
}

}  // namespace cistern::host
