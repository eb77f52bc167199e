// Allocates and frees before main, in static and thread_local destructors, in atexit and on_exit handlers and in the
// last destructors of all. The last line comes from the last of them.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

constexpr size_t kBytes[] = {1, 24, 100, 4096, 33000, 200000, 3000000};

// Blocks that live from one moment of the process to another; its contents tell whether they were kept.
class Batch {
 public:
  void fill(unsigned char with) {
    with_ = with;
    for (size_t i = 0; i < std::size(kBytes); ++i) {
      blocks_[i] = static_cast<unsigned char*>(malloc(kBytes[i]));
      REQUIRE(blocks_[i]);
      memset(blocks_[i], with, kBytes[i]);
    }
  }
  void empty() {
    for (size_t i = 0; i < std::size(kBytes); ++i) {
      for (size_t at = 0; at < kBytes[i]; ++at) REQUIRE(blocks_[i][at] == with_);
      blocks_[i] = static_cast<unsigned char*>(realloc(blocks_[i], kBytes[i] + 50));
      REQUIRE(blocks_[i][kBytes[i] - 1] == with_);
      free(blocks_[i]);
    }
  }

 private:
  unsigned char* blocks_[std::size(kBytes)];
  unsigned char with_;
};

Batch of_first_constructor, of_static, of_thread, of_handler, of_late_handler;

[[gnu::constructor(101)]] void first_constructor() { of_first_constructor.fill(1); }

[[gnu::destructor(101)]] void last_destructor() {
  of_first_constructor.empty();
  of_late_handler.empty();
  delete new std::string(5000, 'x');
  char* line = static_cast<char*>(malloc(100));  // never freed
  strcpy(line, "static_destructors: the last destructor ran\n");
  if (write(STDOUT_FILENO, line, strlen(line)) < 0) _exit(3);
}

struct Static {
  Static() { of_static.fill(2); }
  ~Static() {
    of_static.empty();
    words.assign(1000, "a word that does not fit into a string itself");
    of_handler.empty();
  }
  std::vector<std::string> words;
} static_object;

struct InThread {
  std::unique_ptr<std::string> text = std::make_unique<std::string>(300, 'y');
  ~InThread() {
    of_thread.empty();
    text = std::make_unique<std::string>(70000, 'z');
  }
};

}  // namespace

int main() {
  static thread_local InThread of_main;
  REQUIRE(of_main.text->size() == 300);
  of_thread.fill(3);
  of_handler.fill(4);
  atexit([] {
    of_late_handler.fill(5);
    free(calloc(1000, 1000));
    atexit([] { delete[] new char[10000]; });  // while exiting
  });
  on_exit([](int, void* block) { free(block); }, malloc(40000));
  return 0;
}
