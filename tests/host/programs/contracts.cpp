// The contracts of the malloc family and of operator new that programs rely on. Each broken one is a line; exit 1 then.
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <new>

// Old programs are bound to it; the C library has it for them only.
extern "C" void cfree_of_old_programs(void*);
#if defined(__x86_64__)
__asm__(".symver cfree_of_old_programs, cfree@GLIBC_2.2.5");
#else
__asm__(".symver cfree_of_old_programs, cfree@GLIBC_2.17");
#endif

namespace {

int broken = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  std::printf("broken: %s\n", what);
  ++broken;
}

// Sizes that only the run time knows: the compiler would reject or fold them.
volatile size_t huge = PTRDIFF_MAX;
volatile size_t wrapping = SIZE_MAX / 2 + 2;
volatile size_t near_the_end = SIZE_MAX - 100;
volatile size_t two = 2;

bool is_aligned(const void* block, size_t alignment) { return reinterpret_cast<uintptr_t>(block) % alignment == 0; }

template <class Call>
void check_no_memory(Call call, const char* what) {
  errno = 0;
  void* block = call();
  check(!block && errno == ENOMEM, what);
  free(block);
}

void check_failures() {
  check_no_memory([] { return malloc(huge); }, "malloc of PTRDIFF_MAX");
  check_no_memory([] { return malloc(huge + 1); }, "malloc above PTRDIFF_MAX");
  check_no_memory([] { return calloc(wrapping, two); }, "calloc overflow");
  check_no_memory([] { return calloc(huge, two); }, "calloc of too much");
  check_no_memory([] { return reallocarray(nullptr, wrapping, two); }, "reallocarray overflow");
  check_no_memory([] { return memalign(64, huge); }, "memalign of PTRDIFF_MAX");
  check_no_memory([] { return aligned_alloc(64, huge - 63); }, "aligned_alloc near PTRDIFF_MAX");
  check_no_memory([] { return valloc(near_the_end); }, "valloc near SIZE_MAX");
  check_no_memory([] { return pvalloc(near_the_end); }, "pvalloc near SIZE_MAX");
  void* volatile block = malloc(16);
  memcpy(block, "fifteen letters", 16);
  check_no_memory([&] { return realloc(block, huge); }, "realloc of PTRDIFF_MAX");
  check_no_memory([&] { return reallocarray(block, wrapping, two); }, "reallocarray overflow of a block");
  check(memcmp(block, "fifteen letters", 16) == 0, "a failed realloc leaves the block");
  free(block);
}

void check_posix_memalign() {
  void* block = &broken;
  errno = 7;
  check(posix_memalign(&block, 3, 10) == EINVAL && block == &broken, "posix_memalign: alignment 3");
  check(posix_memalign(&block, 2, 10) == EINVAL, "posix_memalign: alignment below a pointer's");
  check(posix_memalign(&block, 64, huge) == ENOMEM, "posix_memalign of PTRDIFF_MAX");
  check(errno == 7 || errno == ENOMEM, "posix_memalign: errno");
  check(posix_memalign(&block, 4096, 0) == 0 && is_aligned(block, 4096), "posix_memalign of nothing");
  free(block);
}

void check_alignment() {
  for (size_t alignment = 16; alignment <= 65536; alignment *= 2) {
    void* block = nullptr;
    check(posix_memalign(&block, alignment, 100) == 0 && is_aligned(block, alignment), "posix_memalign");
    void* other = memalign(alignment, 100);
    check(other && is_aligned(other, alignment), "memalign");
    void* third = aligned_alloc(alignment, alignment);
    check(third && is_aligned(third, alignment), "aligned_alloc");
    void* fourth = ::operator new(100, std::align_val_t(alignment));
    check(is_aligned(fourth, alignment), "aligned operator new");
    for (void* freed : {block, other, third}) free(freed);
    ::operator delete(fourth, std::align_val_t(alignment));
  }
  void* page = valloc(10);
  void* pages = pvalloc(10);
  check(is_aligned(page, 4096) && is_aligned(pages, 4096) && malloc_usable_size(pages) >= 4096, "valloc, pvalloc");
  cfree_of_old_programs(page);
  free(pages);
  for (size_t bytes : {1, 8, 24, 100, 5000, 300000}) {
    void* block = malloc(bytes);
    check(is_aligned(block, alignof(max_align_t)) && malloc_usable_size(block) >= bytes, "malloc's alignment and size");
    free(block);
  }
}

void check_edges() {
  void* one = malloc(0);
  void* other = malloc(0);
  check(one && other && one != other, "malloc(0) is unique");
  free(one);
  free(other);
  char* zeros = static_cast<char*>(calloc(1000, 3));
  bool all_zero = true;
  for (int i = 0; i < 3000; ++i) all_zero &= zeros[i] == 0;
  check(all_zero, "calloc clears");
  strcpy(zeros, "kept");
  zeros = static_cast<char*>(realloc(zeros, 1 << 20));
  check(strcmp(zeros, "kept") == 0, "realloc keeps");
  zeros = static_cast<char*>(reallocarray(zeros, 100, 50));
  check(strcmp(zeros, "kept") == 0, "reallocarray keeps");
  errno = 42;
  free(zeros);
  void* large = malloc(64 << 20);
  errno = 42;
  free(large);
  free(nullptr);
  check(errno == 42, "free keeps errno");
  check(malloc_usable_size(nullptr) == 0, "malloc_usable_size of null");
  void* fresh = realloc(nullptr, 30);
  check(fresh != nullptr, "realloc of null");
  check(realloc(fresh, two - 2) == nullptr, "realloc to nothing frees");
}

void check_operators() {
  void* one = ::operator new(two - 2);
  void* other = ::operator new(two - 2);
  void* array = ::operator new[](two - 2);
  void* quiet = ::operator new(two - 2, std::nothrow);
  check(one && other && array && quiet && one != other && array != one, "new(0) is unique");
  ::operator delete(one);
  ::operator delete (other, std::size_t{1});
  ::operator delete[](array);
  ::operator delete(quiet, std::nothrow);
  ::operator delete(nullptr);
  check(::operator new(huge, std::nothrow) == nullptr, "nothrow new of PTRDIFF_MAX");
  check(::operator new[](huge, std::nothrow) == nullptr, "nothrow new[] of PTRDIFF_MAX");
  check(::operator new(huge, std::align_val_t(64), std::nothrow) == nullptr, "aligned nothrow new of PTRDIFF_MAX");
}

}  // namespace

int main() {
  check_failures();
  check_posix_memalign();
  check_alignment();
  check_edges();
  check_operators();
  if (!broken) std::puts("all contracts hold");
  return broken ? 1 : 0;
}
