// Ends with 1900 blocks of three sizes live, 1000 of them of a thread that has ended; with "none" the same is done but
// nothing is left. Blocks freed by other threads than those that allocated them, which an allocator may still keep in
// its lists, are not live. Prints, for each size, how many blocks were made and their usable bytes.
#include <malloc.h>

#include <string_view>
#include <thread>

#include "check.hpp"

namespace {

constexpr size_t kBytes[] = {200, 6000, 150000};
constexpr int kSizes = 3;
constexpr int kOfMain[kSizes] = {400, 350, 150};
constexpr int kOfThread[kSizes] = {600, 300, 100};
constexpr int kHandedOver = 500;

struct Made {
  int blocks = 0;
  size_t usable_bytes = 0;
};
Made made[kSizes];
void* kept[1900];
int kept_count = 0;

void make(const int (&counts)[kSizes]) {
  for (int size = 0; size < kSizes; ++size) {
    for (int i = 0; i < counts[size]; ++i) {
      void* block = malloc(kBytes[size]);
      REQUIRE(block);
      kept[kept_count++] = block;
      ++made[size].blocks;
      made[size].usable_bytes += malloc_usable_size(block);
    }
  }
}

void make_some(void* (&blocks)[kHandedOver]) {
  for (int i = 0; i < kHandedOver; ++i) blocks[i] = malloc(kBytes[i % kSizes] / 2);
}

void free_some(void* (&blocks)[kHandedOver]) {
  for (void* block : blocks) free(block);
}

}  // namespace

int main(int count, char** arguments) {
  static void *from_main[kHandedOver], *from_thread[kHandedOver];
  make_some(from_main);
  make(kOfMain);
  std::thread([] {
    free_some(from_main);
    make_some(from_thread);
    make(kOfThread);
  }).join();
  free_some(from_thread);
  if (count > 1 && arguments[1] == std::string_view("none"))
    for (void* block : kept) free(block);
  for (int size = 0; size < kSizes; ++size)
    printf("%zu %d %zu\n", kBytes[size], made[size].blocks, made[size].usable_bytes);
  return 0;
}
