// See touchable.hpp.
#include "shim/staging/touchable.hpp"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "pool/base/own_memory.hpp"
#include "pool/base/page_size.hpp"

namespace cistern {
namespace {

struct PageRange {
  std::uintptr_t first;
  std::size_t bytes;
};
PageRange pages_of(const staging::Side& side, const staging::Box& box) {
  const auto begin = reinterpret_cast<std::uintptr_t>(side.base);
  const std::uintptr_t first = page_begin(begin);
  const std::uintptr_t end = whole_pages(begin + staging::span_bytes(side, box));
  return {first, end - first};
}

// One byte of each page, by the kernel, which answers where we would fault.
bool can_read_each_page(const PageRange& pages) {
  constexpr std::size_t kAtOnce = 256;
  iovec each[kAtOnce];
  char bytes[kAtOnce];
  iovec here{bytes, 0};
  for (std::size_t at = 0; at < pages.bytes;) {
    std::size_t count = 0;
    for (; count < kAtOnce && at < pages.bytes; ++count, at += page_bytes())
      each[count] = {reinterpret_cast<void*>(pages.first + at), 1};
    here.iov_len = count;
    const long answer = copy_own_memory(SYS_process_vm_readv, {&here, 1}, {each, count});
    if (answer != static_cast<long>(count)) return false;
  }
  return true;
}

// Before Linux 5.14 nothing says that memory may be written without doing it.
bool may_touch_pages(const PageRange& pages, bool write) {
#ifndef MADV_POPULATE_READ
  constexpr int MADV_POPULATE_READ = 22, MADV_POPULATE_WRITE = 23;
#endif
  const long answer = system_call(SYS_madvise, pages.first, pages.bytes,
                                  static_cast<std::uintptr_t>(write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ));
  if (answer == 0) return true;
  return answer == -EINVAL && !write && can_read_each_page(pages);
}

}  // namespace

// Row by row where pages lie between them: those are none of the copy's, and may never have been touched.
bool may_touch(const staging::Side& side, const staging::Box& box, bool write) {
  const bool rows_apart = box.rows > 1 && side.row_pitch >= box.row_bytes + page_bytes();
  const bool slices_apart = box.slices > 1 && side.slice_pitch >= box.rows * side.row_pitch + page_bytes();
  if (!rows_apart && !slices_apart) return may_touch_pages(pages_of(side, box), write);
  const staging::Box part{box.row_bytes, rows_apart ? 1 : box.rows};
  for (std::size_t slice = 0; slice < box.slices; ++slice)
    for (std::size_t row = 0; row < box.rows; row += part.rows) {
      const staging::Side at{side.base + slice * side.slice_pitch + row * side.row_pitch, side.row_pitch};
      if (!may_touch_pages(pages_of(at, part), write)) return false;
    }
  return true;
}

// The page tables are not asked: a program that loads a file copies each page once, from the page cache, and no page is
// in them before that.
bool is_resident(std::uintptr_t page) {
  unsigned char resident = 0;
  return system_call(SYS_mincore, page, page_bytes(), reinterpret_cast<std::uintptr_t>(&resident)) == 0 &&
         (resident & 1);
}

bool is_resident(const staging::Side& side, const staging::Box& box, std::size_t looks) {
  const PageRange pages = pages_of(side, box);
  const std::size_t count = pages.bytes / page_bytes();
  looks = std::min(looks, count);
  for (std::size_t i = 0; i < looks; ++i)
    if (!is_resident(pages.first + count * i / looks * page_bytes())) return false;
  return true;
}

}  // namespace cistern
