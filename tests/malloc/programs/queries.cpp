// What a program can ask the allocator and tell it: usable sizes, mallinfo and mallinfo2, malloc_trim, mallopt,
// malloc_info; and the C library's __libc names, mixed with the plain ones in both directions.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/auxv.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "check.hpp"

namespace {

using check::fail;

void usable_sizes() {
  REQUIRE(malloc_usable_size(nullptr) == 0);
  for (size_t bytes = 1; bytes < 10 << 20; bytes += 1 + bytes / 9) {
    char* block = static_cast<char*>(malloc(bytes));
    const size_t usable = malloc_usable_size(block);
    REQUIRE(usable >= bytes);
    REQUIRE(usable <= bytes + bytes / 2 + 2 * getauxval(AT_PAGESZ));  // a block is not a page of blocks
    memset(block, 1, usable);
    REQUIRE(malloc_usable_size(block) == usable);
    free(block);
  }
}

// The figures of mallinfo are ints that wrap; small ones do not.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
size_t in_use_by_mallinfo() { return static_cast<size_t>(static_cast<unsigned>(mallinfo().uordblks)); }
#pragma GCC diagnostic pop

void in_use() {
  constexpr size_t kBytes = 1000, kBlocks = 5000, kLargeBytes = 8 << 20;
  std::vector<void*> blocks(kBlocks);
  const struct mallinfo2 before = mallinfo2();
  const size_t before_in_mallinfo = in_use_by_mallinfo();
  for (void*& block : blocks) block = malloc(kBytes);
  const struct mallinfo2 with_small = mallinfo2();
  if (with_small.uordblks < before.uordblks + kBytes * kBlocks)
    fail("uordblks %zu, then %zu", before.uordblks, with_small.uordblks);
  REQUIRE(in_use_by_mallinfo() >= before_in_mallinfo + kBytes * kBlocks);
  REQUIRE(with_small.arena + with_small.hblkhd >= with_small.uordblks);
  void* large = malloc(kLargeBytes);  // may lie in a mapping of its own
  const struct mallinfo2 with_large = mallinfo2();
  REQUIRE(with_large.uordblks + with_large.hblkhd >= with_small.uordblks + with_small.hblkhd + kLargeBytes);
  free(large);
  for (void* block : blocks) free(block);
  const struct mallinfo2 after = mallinfo2();
  REQUIRE(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + kBytes * kBlocks / 10);
}

void settings() {
  for (size_t keep : {0, 1, 1 << 20}) {
    const int trimmed = malloc_trim(keep);
    REQUIRE(trimmed == 0 || trimmed == 1);
  }
  REQUIRE(mallopt(M_MXFAST, 64) == 1);
  REQUIRE(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
  REQUIRE(mallopt(M_TOP_PAD, 65536) == 1);
  REQUIRE(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
  REQUIRE(mallopt(M_MMAP_MAX, 1000) == 1);
  REQUIRE(mallopt(M_ARENA_TEST, 4) == 1);
  REQUIRE(mallopt(M_ARENA_MAX, 4) == 1);
}

void information() {
  char* text = nullptr;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  errno = 0;
  REQUIRE(malloc_info(1, stream) == EINVAL);
  REQUIRE(malloc_info(0, stream) == 0);
  fclose(stream);
  REQUIRE(strncmp(text, "<malloc version=\"1\">", 20) == 0);
  REQUIRE(strstr(text, "</malloc>"));
  free(text);
}

template <class Function>
Function* c_library(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Programs that keep an allocator of their own reach the C library's by these names.
void libc_names() {
  auto libc_malloc = c_library<void*(size_t)>("__libc_malloc");
  auto libc_free = c_library<void(void*)>("__libc_free");
  auto libc_calloc = c_library<void*(size_t, size_t)>("__libc_calloc");
  auto libc_realloc = c_library<void*(void*, size_t)>("__libc_realloc");
  auto libc_memalign = c_library<void*(size_t, size_t)>("__libc_memalign");
  auto libc_valloc = c_library<void*(size_t)>("__libc_valloc");
  auto libc_pvalloc = c_library<void*(size_t)>("__libc_pvalloc");
  REQUIRE(libc_malloc && libc_free && libc_calloc && libc_realloc && libc_memalign && libc_valloc && libc_pvalloc);
  auto posix = c_library<int(void**, size_t, size_t)>("__posix_memalign");  // of C libraries before 2.26
  for (size_t bytes : {0, 1, 8, 100, 1000, 5000, 40000, 300000, 5 << 20}) {
    auto filled = [&](void* block) {
      REQUIRE(block && malloc_usable_size(block) >= bytes);
      memset(block, 0x77, bytes);
      return block;
    };
    auto require_filled = [&](void* block) {
      for (size_t i = 0; i < bytes; ++i) REQUIRE(static_cast<unsigned char*>(block)[i] == 0x77);
      return block;
    };
    free(filled(libc_malloc(bytes)));
    free(filled(libc_calloc(1, bytes)));
    free(filled(libc_realloc(nullptr, bytes)));
    free(filled(libc_memalign(256, bytes)));
    free(filled(libc_valloc(bytes)));
    free(filled(libc_pvalloc(bytes)));
    libc_free(filled(malloc(bytes)));
    libc_free(filled(calloc(1, bytes)));
    libc_free(filled(memalign(256, bytes)));
    free(require_filled(realloc(filled(libc_malloc(bytes)), bytes + 5000)));
    libc_free(require_filled(libc_realloc(filled(malloc(bytes)), bytes + 5000)));
    free(require_filled(libc_realloc(filled(memalign(64, bytes)), bytes + 10)));
    void* block = nullptr;
    if (posix) REQUIRE(posix(&block, 64, bytes) == 0);
    if (posix) free(filled(block));
  }
}

}  // namespace

int main() {
  usable_sizes();
  in_use();
  libc_names();
  settings();
  information();
  usable_sizes();
  printf("queries: hold\n");
  return 0;
}
