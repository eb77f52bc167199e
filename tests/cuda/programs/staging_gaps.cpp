// Rows that lie far apart in memory of the host that was never touched: a copy touches the rows, and nothing between.
// harness: stages=both
#include <sys/mman.h>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kRow = 4096, kRows = 256, kPitch = size_t{1} << 20;

static unsigned char* sparse() {
  void* memory =
      mmap(nullptr, kRows * kPitch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) exit(91);
  madvise(memory, kRows * kPitch, MADV_NOHUGEPAGE);
  return static_cast<unsigned char*>(memory);
}

static const char* between_rows(unsigned char* memory) {
  unsigned char resident[kPitch / kRow];
  size_t count = 0;
  for (size_t row = 0; row < kRows; ++row) {
    mincore(memory + row * kPitch, kPitch, resident);
    for (const unsigned char page : resident) count += page & 1;
  }
  return count <= 2 * kRows ? "untouched" : "TOUCHED";
}

int main() {
  unsigned char* const memory = sparse();
  void* const device = device_block(kRow * kRows);
  for (size_t row = 0; row < kRows; ++row) write_pattern(memory + row * kPitch, kRow, static_cast<unsigned>(row));
  NEED(cudaMemcpy2D(device, kRow, memory, kPitch, kRow, kRows, cudaMemcpyHostToDevice));
  say("to the device: %s", between_rows(memory));
  unsigned char* const back = sparse();
  NEED(cudaMemcpy2D(back, kPitch, device, kRow, kRow, kRows, cudaMemcpyDeviceToHost));
  bool same = true;
  for (size_t row = 0; row < kRows; ++row) same &= memcmp(memory + row * kPitch, back + row * kPitch, kRow) == 0;
  say("to the host: %s, %s", same ? "arrived" : "DIFFERENT", between_rows(back));
  NEED(cudaFree(device));
  return finish();
}
