// Copies mapped files to a device and back: shared and private mappings, files that are not in the page cache, sparse
// files, a file that takes the place of another. Shared memory and huge pages are copied too. Random copies of a file
// and of a model of it in the program's memory bring the same bytes. Files are deleted before they are mapped, but for
// some that random copies may open by their name; those are dropped from the page cache from time to time.
//
//   staging_files [deleted|named SEED [COPIES]]
//
// harness: stages=both
// harness: arguments=fixed
// harness: arguments=deleted 7
// harness: arguments=named 8
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <random>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{5} << 20, kPage = 4096;

// --- Files

// In the folder that the program runs in.
static char name[sizeof "staging-files-XXXXXX"];
static int new_named_file(size_t bytes) {
  strcpy(name, "staging-files-XXXXXX");
  const int file = mkstemp(name);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) exit(91);
  return file;
}
static int new_file(size_t bytes) {
  const int file = new_named_file(bytes);
  if (unlink(name) != 0) exit(91);
  return file;
}

static unsigned char* mapped(int file, int flags, int rights = PROT_READ | PROT_WRITE) {
  void* const at = mmap(nullptr, kBytes, rights, flags, file, 0);
  if (at == MAP_FAILED) exit(92);
  return static_cast<unsigned char*>(at);
}

static void fill(int file, unsigned round) {
  const std::vector<unsigned char> bytes = pattern(kBytes, round);
  if (pwrite(file, bytes.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) exit(93);
}

static int filled_file() {
  const int file = new_file(kBytes);
  fill(file, 1);
  return file;
}

// --- The copies

class Block {
 public:
  Block() : at_(device_block<unsigned char>(kBytes)) {}
  ~Block() { NEED(cudaFree(at_)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  unsigned char* at() const { return at_; }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> found(kBytes);
    NEED(cudaMemcpy(found.data(), at_, kBytes, cudaMemcpyDeviceToHost));
    return found;
  }

 private:
  unsigned char* const at_;
};

static void there(const char* name, const unsigned char* memory, unsigned round) {
  const Block block;
  SHOW(cudaMemcpy(block.at(), memory, kBytes, cudaMemcpyHostToDevice));
  say("  %s: %s", name, block.bytes() == pattern(kBytes, round) ? "all arrived" : "something else arrived");
}

static void back(const char* name, unsigned char* memory) {
  const Block block;
  const std::vector<unsigned char> bytes = pattern(kBytes, 2);
  NEED(cudaMemcpy(block.at(), bytes.data(), kBytes, cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy(memory, block.at(), kBytes, cudaMemcpyDeviceToHost));
  say("  %s: %s", name, has_pattern(memory, kBytes, 2) ? "all came back" : "something else came back");
}

static void both_mappings() {
  const int file = filled_file();
  unsigned char* const shared = mapped(file, MAP_SHARED);
  unsigned char* const own = mapped(file, MAP_PRIVATE);
  unsigned char* const read_only = mapped(file, MAP_PRIVATE, PROT_READ);
  there("shared", shared, 1);
  there("private", own, 1);
  there("read-only", read_only, 1);
  back("private", own);
  there("the file is as before", read_only, 1);
  back("shared", shared);
  there("the file has changed", read_only, 2);
  there("the private mapping has not", own, 2);
  for (unsigned char* memory : {shared, own, read_only}) munmap(memory, kBytes);
  close(file);
}

static void cold() {
  const int file = filled_file();
  fsync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  unsigned char* const memory = mapped(file, MAP_SHARED);
  there("not in the page cache", memory, 1);
  munmap(memory, kBytes);
  close(file);
}

static void sparse() {
  const int file = new_file(kBytes);
  unsigned char* const memory = mapped(file, MAP_SHARED);
  const Block block;
  SHOW(cudaMemcpy(block.at(), memory, kBytes, cudaMemcpyHostToDevice));
  say("  sparse: %s", block.bytes() == std::vector<unsigned char>(kBytes, 0) ? "zeros" : "something else arrived");
  back("sparse", memory);
  munmap(memory, kBytes);
  close(file);
}

// Cistern remembers for a while which memory lies where. The bytes are right nevertheless.
static void replaced() {
  const int first = filled_file(), second = new_file(kBytes);
  fill(second, 3);
  unsigned char* const memory = mapped(first, MAP_SHARED);
  there("the first file", memory, 1);
  if (mmap(memory, kBytes, PROT_READ, MAP_SHARED | MAP_FIXED, second, 0) != memory) exit(94);
  there("another at its place", memory, 3);
  if (mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory) exit(95);
  write_pattern(memory, kBytes, 4);
  there("plain memory at its place", memory, 4);
  munmap(memory, kBytes);
  close(first);
  close(second);
}

static void other_memory() {
  const int memory = memfd_create("staging", 0);
  if (ftruncate(memory, kBytes) != 0) exit(96);
  unsigned char* const shared = mapped(memory, MAP_SHARED);
  write_pattern(shared, kBytes, 1);
  there("memfd", shared, 1);
  back("memfd", shared);
  munmap(shared, kBytes);
  close(memory);
  constexpr size_t kHuge = size_t{6} << 20;
  void* const huge = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (huge == MAP_FAILED) return;  // there are none: what is said is said where they are, and then the ways agree
  write_pattern(huge, kBytes, 1);
  const Block block;
  NEED(cudaMemcpy(block.at(), huge, kBytes, cudaMemcpyHostToDevice));
  if (block.bytes() != pattern(kBytes, 1)) exit(97);
  munmap(huge, kHuge);
}

// The same copies of a mapping and of plain memory, at random places.
static void random_copies(bool is_named, unsigned seed, int copies) {
  std::mt19937 random(seed);
  const int file = is_named ? new_named_file(kBytes) : new_file(kBytes);
  fill(file, 1);
  unsigned char* const memory = mapped(file, is_named ? MAP_PRIVATE : MAP_SHARED);
  std::vector<unsigned char> model = pattern(kBytes, 1);
  const Block from_file, from_model;
  const cudaStream_t stream = new_stream();
  int different = 0;
  for (const Block* block : {&from_file, &from_model}) NEED(cudaMemset(block->at(), 7, kBytes));
  NEED(cudaDeviceSynchronize());
  for (int copy = 0; copy < copies; ++copy) {
    if (is_named && copy % 50 == 0 && (fsync(file) || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED))) exit(98);
    const size_t bytes = 1 + random() % (copy % 4 ? 300'000 : kBytes), at = random() % (kBytes - bytes + 1);
    const bool to_device = random() % 3 != 0;
    const auto both = [&](unsigned char* host, const Block& block) {
      unsigned char* const device = block.at() + at;
      if (to_device)
        NEED(cudaMemcpyAsync(device, host + at, bytes, cudaMemcpyHostToDevice, stream));
      else
        NEED(cudaMemcpyAsync(host + at, device, bytes, cudaMemcpyDeviceToHost, stream));
    };
    both(memory, from_file);
    both(model.data(), from_model);
    memory[at] = model[at] = static_cast<unsigned char>(random());
    different += memcmp(memory, model.data(), kBytes) != 0;
  }
  NEED(cudaStreamSynchronize(stream));
  different += from_file.bytes() != from_model.bytes();
  say("random copies, seed %u: %d times different", seed, different);
  NEED(cudaStreamDestroy(stream));
  munmap(memory, kBytes);
  close(file);
  if (is_named) unlink(name);
}

// To close a file that was opened for a copy would end the locks that the program has on it.
static void locked() {
  const int file = new_named_file(kBytes);
  fill(file, 1);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (fcntl(file, F_SETLK, &lock) != 0) exit(99);
  const Block block;
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    unsigned char* const memory = mapped(file, flags, PROT_READ);
    NEED(cudaMemcpy(block.at(), memory, kBytes, cudaMemcpyHostToDevice));
    munmap(memory, kBytes);
  }
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  say("a lock is %s", status == 0 ? "held" : "lost");
  unlink(name);
  close(file);
}

int main(int count, char** arguments) {
  if (count > 2) {
    const int copies = count > 3 ? atoi(arguments[3]) : 300;
    random_copies(strcmp(arguments[1], "named") == 0, static_cast<unsigned>(atoi(arguments[2])), copies);
    return finish();
  }
  both_mappings();
  cold();
  sparse();
  replaced();
  other_memory();
  locked();
  return finish();
}
