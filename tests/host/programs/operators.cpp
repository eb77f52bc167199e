// operators N: allocates N blocks with each form of operator new, and gives half of each back in the forms of delete;
// so many blocks of malloc too, some moved. Says how many were made, and how many are kept.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

constexpr std::align_val_t kAligned{128};

void* make(int form, std::size_t bytes) {
  switch (form) {
    case 0:
      return ::operator new(bytes);
    case 1:
      return ::operator new[](bytes, std::nothrow);
    case 2:
      return ::operator new(bytes, kAligned);
    case 3:
      return ::operator new[](bytes, kAligned, std::nothrow);
    default:
      return std::realloc(std::malloc(bytes), 20 * bytes);
  }
}

void unmake(int form, void* block, std::size_t bytes, bool sized) {
  switch (form) {
    case 0:
      return sized ? ::operator delete(block, bytes) : ::operator delete(block);
    case 1:
      return sized ? ::operator delete[](block, bytes) : ::operator delete[](block, std::nothrow);
    case 2:
      return sized ? ::operator delete(block, bytes, kAligned) : ::operator delete(block, kAligned);
    case 3:
      return sized ? ::operator delete[](block, bytes, kAligned) : ::operator delete[](block, kAligned, std::nothrow);
    default:
      return std::free(block);
  }
}

}  // namespace

int main(int, char** arguments) {
  const int count = std::atoi(arguments[1]);
  static void* volatile kept;  // the compiler is not to know what becomes of them
  for (int i = 0; i < count; ++i)
    for (int form = 0; form < 5; ++form) {
      const std::size_t bytes = 100 + static_cast<std::size_t>(form);
      kept = make(form, bytes);
      if (i % 2) unmake(form, kept, bytes, i % 4 == 1);
      unmake(form, nullptr, bytes, i % 4 == 1);
    }
  std::printf("%d made, %d kept\n", 5 * count, 5 * (count / 2));
  return 0;
}
