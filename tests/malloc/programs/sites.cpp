// Keeps blocks from three functions and from a thread that ends: argv[1] blocks of 100 bytes from each of two, one of
// 3 MB; frees as many again.
#include <stdio.h>
#include <stdlib.h>

#include <thread>

struct Node {
  Node* next;
  char rest[92];
};
static Node* kept = nullptr;

__attribute__((noinline)) void keep_nodes(int count) {
  for (int i = 0; i < count; ++i) {
    auto* node = static_cast<Node*>(malloc(100));
    node->next = kept;
    kept = node;
  }
}

__attribute__((noinline)) void thread_keeps_nodes(int count) {
  for (int i = 0; i < count; ++i) {
    auto* node = static_cast<Node*>(calloc(1, 100));
    node->next = kept;
    kept = node;
  }
}

__attribute__((noinline)) void drop_nodes(int count) {
  for (int i = 0; i < count; ++i) {
    void* volatile dropped = malloc(100);
    free(dropped);
  }
}

__attribute__((noinline)) void* keep_large() {
  void* volatile large = malloc(3000000);
  return large;
}

int main(int count, char** arguments) {
  const int blocks = count > 1 ? atoi(arguments[1]) : 1000;
  keep_nodes(blocks);
  std::thread(thread_keeps_nodes, blocks).join();
  drop_nodes(blocks);
  static void* large = keep_large();
  return large == nullptr;
}
