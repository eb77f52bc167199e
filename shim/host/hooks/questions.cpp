// See hooks.hpp: sizes, figures, trimming, tunables.
#include <errno.h>

#include "pool/heap/account.hpp"
#include "pool/heap/blocks.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/threads.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/hooks/slow_path.hpp"

namespace cistern::host {

size_t hook_malloc_usable_size(void* block) {
  if (!block) return 0;
  if (const std::size_t usable = host_pool::usable_bytes(block)) return usable;
  return !pooled() || is_native(block) ? native_usable(block) : 0;
}

int hook_malloc_trim(size_t keep_bytes) {
  InsideSlowPath inside;
  if (!pooled()) return native().malloc_trim(keep_bytes);
  const int kept_errno = errno;
  const bool given_back = host_pool::trim(keep_bytes) > 0;
  errno = kept_errno;
  return given_back;
}

// The C library's tunables say nothing to the pool and are taken all the same, as it takes them. What blocks hold is
// for the program to see: that the C library does itself.
int hook_mallopt(int parameter, int value) {
  if (parameter == M_PERTURB && value != 0 && native_is_c_library()) leave_to_c_library();
  return native().mallopt(parameter, value);
}

struct mallinfo2 hook_mallinfo2() {
  if (!pooled()) return native().mallinfo2();
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  struct mallinfo2 info {};
  info.arena = region.mapped_bytes;
  info.uordblks = account.live_bytes();
  info.fordblks = region.mapped_bytes - account.live_bytes();
  info.keepcost = region.dirty_bytes;
  info.usmblks = region.peak_in_use_bytes;
  return info;
}

struct mallinfo hook_mallinfo() {
  if (!pooled()) return native().mallinfo();
  const struct mallinfo2 wide = hook_mallinfo2();
  struct mallinfo info {};
  info.arena = static_cast<int>(wide.arena);
  info.uordblks = static_cast<int>(wide.uordblks);
  info.fordblks = static_cast<int>(wide.fordblks);
  info.keepcost = static_cast<int>(wide.keepcost);
  info.usmblks = static_cast<int>(wide.usmblks);
  return info;
}

int hook_malloc_info(int options, FILE* file) {
  if (!pooled()) return native().malloc_info(options, file);
  if (options != 0) return EINVAL;
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", file);
  for (unsigned id = 0; id < host_pool::kClasses; ++id) {
    const host_pool::ClassAccount& one = account.classes[id];
    if (!one.page_bytes) continue;
    const std::size_t to = host_pool::class_bytes(id), from = id ? host_pool::class_bytes(id - 1) + 1 : 0;
    fprintf(file, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", from, to,
            static_cast<std::size_t>(one.free_blocks) * to, static_cast<std::size_t>(one.free_blocks));
  }
  fprintf(file,
          "</sizes>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" size=\"%zu\"/>\n"
          "<system type=\"max\" size=\"%zu\"/>\n</heap>\n</malloc>\n",
          static_cast<std::size_t>(account.live_blocks()), static_cast<std::size_t>(account.live_bytes()),
          static_cast<std::size_t>(region.mapped_bytes), static_cast<std::size_t>(region.mapped_bytes));
  return 0;
}

void hook_malloc_stats() {
  if (!pooled()) return native().malloc_stats();
  const host_pool::Account account = host_pool::account();
  fprintf(stderr, "system bytes     = %10zu\nin use bytes     = %10zu\n",
          static_cast<std::size_t>(host_pool::region_figures().mapped_bytes),
          static_cast<std::size_t>(account.live_bytes()));
}

}  // namespace cistern::host
