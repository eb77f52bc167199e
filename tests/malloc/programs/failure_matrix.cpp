// Every way to ask for memory, with sizes and alignments at the edges of what can be asked for: glibc 2.36's answers.
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "check.hpp"

// Clang declares them only when told to.
void operator delete(void*, std::size_t) noexcept;
void operator delete[](void*, std::size_t) noexcept;
void operator delete(void*, std::size_t, std::align_val_t) noexcept;
void operator delete[](void*, std::size_t, std::align_val_t) noexcept;

namespace {

constexpr size_t kMostBytes = PTRDIFF_MAX;
constexpr int kUntouched = 77;
constexpr size_t kLetters = 26;
const char kText[kLetters + 1] = "abcdefghijklmnopqrstuvwxyz";

long checks = 0;
int broken = 0;
bool with_overflows = false;  // an alignment and a size whose sum is: glibc before 2.43 may write to no memory

void hold(bool holds, const char* call, size_t first, size_t second, const char* what) {
  ++checks;
  if (holds) return;
  if (++broken <= 40) printf("broken: %s(0x%zx, 0x%zx): %s\n", call, first, second, what);
}

struct Answer {
  void* block;
  int error;
};

template <class Call>
Answer ask(Call call) {
  errno = kUntouched;
  void* block = call();
  return {block, errno};
}

void release(void* block) {
  errno = kUntouched;
  free(block);
  hold(errno == kUntouched, "free", reinterpret_cast<size_t>(block), 0, "errno changed");
}

void expect_no_memory(Answer answer, const char* call, size_t first, size_t second = 0) {
  hold(!answer.block, call, first, second, "served");
  hold(answer.error == ENOMEM, call, first, second, "errno is not ENOMEM");
  release(answer.block);
}

// A block that was served: aligned, of at least these bytes, writable at both ends, errno as it was.
void expect_block(Answer answer, size_t alignment, size_t bytes, const char* call, size_t first, size_t second = 0) {
  hold(answer.block, call, first, second, "not served");
  if (!answer.block) return;
  hold(answer.error == kUntouched, call, first, second, "errno changed");
  hold(check::is_aligned(answer.block, alignment), call, first, second, "not aligned");
  const size_t usable = malloc_usable_size(answer.block);
  hold(usable >= bytes, call, first, second, "less usable than asked for");
  if (usable) memset(answer.block, 1, 1), memset(static_cast<char*>(answer.block) + usable - 1, 1, 1);
  release(answer.block);
}

std::vector<size_t> sizes_that_are_too_large() {
  std::vector<size_t> sizes;
  for (size_t below : {0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 63, 64, 100, 511, 512, 4079, 4080, 4094, 4095, 4096}) {
    sizes.push_back(kMostBytes - below);
    sizes.push_back(SIZE_MAX - below);
  }
  for (size_t above : {1, 2, 15, 16, 17, 4095, 4096, 4097}) sizes.push_back(kMostBytes + above);
  for (int bit : {47, 48, 56, 57, 62}) sizes.push_back(size_t{1} << bit);  // no address space has room for them
  return sizes;
}

std::vector<size_t> sizes_that_are_served() {
  std::vector<size_t> sizes;
  for (size_t bytes = 0; bytes <= 70; ++bytes) sizes.push_back(bytes);
  for (size_t edge = 128; edge <= size_t{8} << 20; edge *= 2)
    for (size_t bytes : {edge - 17, edge - 16, edge - 15, edge - 1, edge, edge + 1, edge + edge / 2})
      sizes.push_back(bytes);
  return sizes;
}

// --- malloc, calloc, realloc
void check_too_large(size_t bytes) {
  expect_no_memory(ask([&] { return malloc(bytes); }), "malloc", bytes);
  expect_no_memory(ask([&] { return realloc(nullptr, bytes); }), "realloc of null", bytes);
  expect_no_memory(ask([&] { return calloc(1, bytes); }), "calloc", 1, bytes);
  expect_no_memory(ask([&] { return calloc(bytes, 1); }), "calloc", bytes, 1);
  expect_no_memory(ask([&] { return calloc(bytes, 2); }), "calloc", bytes, 2);
  expect_no_memory(ask([&] { return calloc(bytes, bytes); }), "calloc", bytes, bytes);
  expect_no_memory(ask([&] { return reallocarray(nullptr, bytes, 1); }), "reallocarray of null", bytes, 1);
  expect_no_memory(ask([&] { return reallocarray(nullptr, 3, bytes); }), "reallocarray of null", 3, bytes);
  expect_no_memory(ask([&] { return valloc(bytes); }), "valloc", bytes);
  expect_no_memory(ask([&] { return pvalloc(bytes); }), "pvalloc", bytes);
  for (size_t alignment : {1, 8, 16, 32, 64, 4096, 65536, 1 << 20, 1 << 30}) {
    expect_no_memory(ask([&] { return memalign(alignment, bytes); }), "memalign", alignment, bytes);
    expect_no_memory(ask([&] { return aligned_alloc(alignment, bytes); }), "aligned_alloc", alignment, bytes);
  }
}

void check_products() {
  constexpr size_t kHalf = size_t{1} << 32;
  struct Product {
    size_t count, bytes;
  };
  // Each wraps to something small or is more than can be asked for.
  for (Product product : {Product{kHalf, kHalf}, Product{kHalf + 1, kHalf}, Product{SIZE_MAX / 2 + 2, 2},
                          Product{2, SIZE_MAX / 2 + 2}, Product{SIZE_MAX / 3 + 1, 3}, Product{SIZE_MAX / 16 + 1, 16},
                          Product{SIZE_MAX / 16 + 2, 16}, Product{SIZE_MAX, SIZE_MAX}, Product{SIZE_MAX, 2},
                          Product{kHalf / 2, kHalf}, Product{kHalf - 1, kHalf + 1}, Product{kMostBytes, 2}}) {
    expect_no_memory(ask([&] { return calloc(product.count, product.bytes); }), "calloc", product.count, product.bytes);
    expect_no_memory(ask([&] { return reallocarray(nullptr, product.count, product.bytes); }), "reallocarray of null",
                     product.count, product.bytes);
    void* volatile kept = malloc(kLetters);
    memcpy(kept, kText, kLetters);
    expect_no_memory(ask([&] { return reallocarray(kept, product.count, product.bytes); }), "reallocarray",
                     product.count, product.bytes);
    hold(memcmp(kept, kText, kLetters) == 0, "reallocarray", product.count, product.bytes, "contents changed");
    release(kept);
  }
  for (size_t other : {size_t{0}, size_t{1}, kMostBytes, SIZE_MAX}) {
    expect_block(ask([&] { return calloc(0, other); }), 16, 0, "calloc", 0, other);
    expect_block(ask([&] { return calloc(other, 0); }), 16, 0, "calloc", other, 0);
    expect_block(ask([&] { return reallocarray(nullptr, 0, other); }), 16, 0, "reallocarray of null", 0, other);
  }
}

// A realloc that fails leaves the block where and as it was, whatever its size class.
void check_failing_realloc(const std::vector<size_t>& too_large) {
  for (size_t held :
       {size_t{1}, size_t{26}, size_t{1000}, size_t{5000}, size_t{40000}, size_t{300000}, size_t{5} << 20}) {
    std::string text(held, 'x');
    for (size_t i = 0; i < held; i += 61) text[i] = static_cast<char>('a' + i % 26);
    char* block = static_cast<char*>(malloc(held));
    memcpy(block, text.data(), held);
    for (size_t bytes : too_large) {
      Answer answer = ask([&] { return realloc(block, bytes); });
      hold(!answer.block && answer.error == ENOMEM, "realloc", held, bytes, "served, or errno is not ENOMEM");
      if (answer.block) block = static_cast<char*>(answer.block);
    }
    hold(memcmp(block, text.data(), held) == 0, "realloc", held, 0, "contents changed");
    hold(malloc_usable_size(block) >= held, "realloc", held, 0, "less usable");
    release(block);
    void* aligned = memalign(4096, held);
    memcpy(aligned, text.data(), held);
    expect_no_memory(ask([&] { return realloc(aligned, kMostBytes); }), "realloc of aligned", held, kMostBytes);
    hold(memcmp(aligned, text.data(), held) == 0, "realloc of aligned", held, kMostBytes, "contents changed");
    release(aligned);
  }
}

void check_realloc_to_nothing() {
  for (size_t held : {0, 1, 100, 5000, 100000, 1 << 20}) {
    Answer answer = ask([&] { return realloc(malloc(held), 0); });
    hold(!answer.block && answer.error == kUntouched, "realloc", held, 0, "not null, or errno changed");
    answer = ask([&] { return reallocarray(malloc(held), 0, 7); });
    hold(!answer.block && answer.error == kUntouched, "reallocarray", held, 0, "not null, or errno changed");
  }
  expect_block(ask([] { return realloc(nullptr, 0); }), 16, 0, "realloc of null", 0);
}

void check_served(size_t bytes) {
  expect_block(ask([&] { return malloc(bytes); }), 16, bytes, "malloc", bytes);
  expect_block(ask([&] { return realloc(nullptr, bytes); }), 16, bytes, "realloc of null", bytes);
  expect_block(ask([&] { return reallocarray(nullptr, bytes, 2); }), 16, 2 * bytes, "reallocarray", bytes, 2);
  expect_block(ask([&] { return valloc(bytes); }), 4096, bytes, "valloc", bytes);
  expect_block(ask([&] { return pvalloc(bytes); }), 4096, (bytes + 4095) / 4096 * 4096, "pvalloc", bytes);
  for (int round = 0; round < 2; ++round) {
    // The second round gets what the first made dirty.
    Answer answer = ask([&] { return calloc(bytes, 1); });
    const char* zeros = static_cast<const char*>(answer.block);
    hold(answer.block && answer.error == kUntouched, "calloc", bytes, 1, "not served, or errno changed");
    bool all_zero = true;
    for (size_t i = 0; i < bytes; ++i) all_zero &= zeros[i] == 0;
    hold(all_zero, "calloc", bytes, 1, "not zero");
    if (answer.block) memset(answer.block, 0xee, bytes);
    release(answer.block);
  }
}

void check_unique() {
  constexpr int kMany = 2000;
  std::vector<void*> blocks;
  for (int i = 0; i < kMany; ++i) blocks.push_back(malloc(0));
  for (int i = 0; i < kMany; ++i) blocks.push_back(memalign(32, 0));
  for (int i = 0; i < kMany; ++i) blocks.push_back(::operator new(0));
  std::vector<void*> sorted = blocks;
  std::sort(sorted.begin(), sorted.end());
  hold(std::unique(sorted.begin(), sorted.end()) == sorted.end() && sorted[0], "malloc", 0, 0, "not unique");
  for (void* block : blocks) release(block);
}

// --- Alignments
void check_alignments() {
  // Those that are no power of two are rounded up: glibc does so up to 2.37, and refuses from 2.38 on in aligned_alloc.
  for (size_t alignment : {0, 1, 2, 3, 5, 8, 9, 15, 16, 17, 24, 48, 100, 1000, 4097}) {
    size_t rounded = 16;
    while (rounded < alignment) rounded *= 2;
    for (size_t bytes : {0, 1, 17, 1000, 40000})
      expect_block(ask([&] { return memalign(alignment, bytes); }), rounded, bytes, "memalign", alignment, bytes);
  }
  for (size_t alignment = 1; alignment <= size_t{1} << 30; alignment *= 2) {
    for (size_t bytes : {0, 1, 100, 5000, 70000}) {
      expect_block(ask([&] { return memalign(alignment, bytes); }), alignment, bytes, "memalign", alignment, bytes);
      expect_block(ask([&] { return aligned_alloc(alignment, bytes); }), alignment, bytes, "aligned_alloc", alignment,
                   bytes);
    }
  }
  for (int bit : {48, 57, 62, 63}) {
    const size_t alignment = size_t{1} << bit;
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, kMostBytes, SIZE_MAX}) {
      if (bit == 63 && bytes == kMostBytes && !with_overflows) continue;
      expect_no_memory(ask([&] { return memalign(alignment, bytes); }), "memalign", alignment, bytes);
      expect_no_memory(ask([&] { return aligned_alloc(alignment, bytes); }), "aligned_alloc", alignment, bytes);
    }
  }
  for (size_t alignment : {(size_t{1} << 63) + 1, SIZE_MAX - 1, SIZE_MAX}) {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{5000}}) {
      const Answer answer = ask([&] { return memalign(alignment, bytes); });
      hold(!answer.block && answer.error == EINVAL, "memalign", alignment, bytes, "served, or errno is not EINVAL");
    }
  }
}

void check_posix_memalign(const std::vector<size_t>& too_large) {
  void* const untouched = &broken;
  auto fails_with = [&](int error, size_t alignment, size_t bytes) {
    void* block = untouched;
    errno = kUntouched;
    const int status = posix_memalign(&block, alignment, bytes);
    hold(status == error, "posix_memalign", alignment, bytes, "other status");
    hold(block == untouched, "posix_memalign", alignment, bytes, "pointer touched");
    // POSIX leaves errno open; glibc sets it where memory is missing.
    hold(errno == kUntouched || (error == ENOMEM && errno == ENOMEM), "posix_memalign", alignment, bytes, "errno");
    if (status == 0) free(block);
  };
  for (size_t alignment : {0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 17, 24, 40, 48, 100, 4097})
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, kMostBytes, SIZE_MAX})
      fails_with(EINVAL, alignment, bytes);
  for (size_t alignment : {(size_t{1} << 63) + 8, SIZE_MAX - 7, SIZE_MAX}) fails_with(EINVAL, alignment, 1);
  for (size_t alignment = 8; alignment <= size_t{1} << 30; alignment *= 2) {
    for (size_t bytes : too_large) fails_with(ENOMEM, alignment, bytes);
    for (size_t bytes : {0, 1, 8, 24, 100, 5000, 70000}) {
      void* block = nullptr;
      errno = kUntouched;
      const int status = posix_memalign(&block, alignment, bytes);
      hold(status == 0 && block, "posix_memalign", alignment, bytes, "not served");
      expect_block({block, errno}, alignment, bytes, "posix_memalign", alignment, bytes);
    }
  }
  for (int bit : {48, 57, 62, 63}) fails_with(ENOMEM, size_t{1} << bit, 1);
  if (with_overflows) fails_with(ENOMEM, size_t{1} << 63, kMostBytes);
}

// --- Operators
template <class Call>
void expect_bad_alloc(Call call, const char* name, size_t bytes, size_t alignment = 0) {
  void* block = nullptr;
  bool caught = false;
  try {
    block = call();
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  hold(caught && !block, name, bytes, alignment, "no bad_alloc");
}

void check_failing_operators(size_t bytes) {
  expect_bad_alloc([&] { return ::operator new(bytes); }, "new", bytes);
  expect_bad_alloc([&] { return ::operator new[](bytes); }, "new[]", bytes);
  hold(!::operator new(bytes, std::nothrow), "nothrow new", bytes, 0, "served");
  hold(!::operator new[](bytes, std::nothrow), "nothrow new[]", bytes, 0, "served");
  // libstdc++ 12 rounds the size of aligned blocks up and may wrap to 0 there.
  for (size_t alignment : {8, 64, 4096, 1 << 20}) {
    if (bytes > SIZE_MAX - alignment) continue;
    const auto aligned = std::align_val_t(alignment);
    expect_bad_alloc([&] { return ::operator new(bytes, aligned); }, "aligned new", bytes, alignment);
    expect_bad_alloc([&] { return ::operator new[](bytes, aligned); }, "aligned new[]", bytes, alignment);
    hold(!::operator new(bytes, aligned, std::nothrow), "aligned nothrow new", bytes, alignment, "served");
    hold(!::operator new[](bytes, aligned, std::nothrow), "aligned nothrow new[]", bytes, alignment, "served");
  }
}

void check_served_operators(size_t bytes) {
  auto usable = [&](void* block, size_t alignment) {
    hold(block && check::is_aligned(block, alignment) && malloc_usable_size(block) >= bytes, "new", bytes, alignment,
         "not served, not aligned or too small");
    memset(block, 0x5a, bytes);
    errno = kUntouched;
    return block;
  };
  errno = kUntouched;
  ::operator delete(usable(::operator new(bytes), 16));
  ::operator delete(usable(::operator new(bytes), 16), bytes);
  ::operator delete[](usable(::operator new[](bytes), 16));
  ::operator delete[](usable(::operator new[](bytes), 16), bytes);
  ::operator delete(usable(::operator new(bytes, std::nothrow), 16), std::nothrow);
  ::operator delete[](usable(::operator new[](bytes, std::nothrow), 16), std::nothrow);
  for (size_t alignment : {1, 8, 16, 32, 64, 4096, 1 << 16, 1 << 21}) {
    const auto aligned = std::align_val_t(alignment);
    ::operator delete(usable(::operator new(bytes, aligned), alignment), aligned);
    ::operator delete(usable(::operator new(bytes, aligned), alignment), bytes, aligned);
    ::operator delete[](usable(::operator new[](bytes, aligned), alignment), aligned);
    ::operator delete[](usable(::operator new[](bytes, aligned), alignment), bytes, aligned);
    ::operator delete(usable(::operator new(bytes, aligned, std::nothrow), alignment), aligned, std::nothrow);
    ::operator delete[](usable(::operator new[](bytes, aligned, std::nothrow), alignment), aligned, std::nothrow);
  }
  hold(errno == kUntouched, "new and delete", bytes, 0, "errno changed");
  free(::operator new(bytes));  // as many a program does
  ::operator delete(malloc(bytes));
}

// --- C23's, where there are any
void check_sized_frees() {
  auto free_sized = reinterpret_cast<void (*)(void*, size_t)>(dlsym(RTLD_DEFAULT, "free_sized"));
  auto free_aligned_sized =
      reinterpret_cast<void (*)(void*, size_t, size_t)>(dlsym(RTLD_DEFAULT, "free_aligned_sized"));
  for (size_t bytes : {0, 1, 100, 5000, 300000}) {
    if (free_sized) free_sized(malloc(bytes), bytes);
    if (free_aligned_sized) free_aligned_sized(aligned_alloc(64, bytes), 64, bytes);
  }
  if (free_sized) free_sized(nullptr, 10);
  if (free_aligned_sized) free_aligned_sized(nullptr, 64, 10);
}

void check_errno_of_free() {
  for (size_t bytes : {0, 1, 1000, 5000, 40000, 300000, 40 << 20}) {
    release(malloc(bytes));
    release(memalign(1 << 16, bytes));
  }
  errno = kUntouched;
  free(nullptr);
  hold(malloc_usable_size(nullptr) == 0 && errno == kUntouched, "malloc_usable_size", 0, 0, "of null is not 0");
}

}  // namespace

// `failure_matrix overflows`
int main(int count, char**) {
  with_overflows = count > 1;
  setvbuf(stdout, nullptr, _IONBF, 0);
  const std::vector<size_t> too_large = sizes_that_are_too_large();
  for (size_t bytes : too_large) {
    check_too_large(bytes);
    check_failing_operators(bytes);
  }
  check_products();
  check_failing_realloc(too_large);
  check_realloc_to_nothing();
  for (size_t bytes : sizes_that_are_served()) {
    check_served(bytes);
    check_served_operators(bytes);
  }
  check_unique();
  check_alignments();
  check_posix_memalign(too_large);
  check_sized_frees();
  check_errno_of_free();
  printf("failure_matrix: %ld checks, %d broken\n", checks, broken);
  return broken != 0;
}
