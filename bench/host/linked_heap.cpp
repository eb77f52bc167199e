// The load of bench/leaks.py: argv[1] MiB of small blocks that point at each other at random, kept to the end; or, with
// a second argument, one block of so much that is written and has no pointers.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Node {
  Node* one;
  Node* other;
  char data[48];
};
std::vector<Node*>* nodes;  // never destroyed
char* block;

int main(int count, char** arguments) {
  const std::size_t bytes = std::strtoull(arguments[1], nullptr, 10) << 20;
  if (count > 2) {
    block = static_cast<char*>(std::malloc(bytes));
    std::memset(block, 1, bytes);
    return 0;
  }
  nodes = new std::vector<Node*>(bytes / sizeof(Node));
  std::uint64_t random = 1;
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    Node* const node = new Node;
    (*nodes)[i] = node;
    random = random * 6364136223846793005u + 1442695040888963407u;
    node->one = (*nodes)[(random >> 33) % (i + 1)];
    node->other = (*nodes)[(random >> 17) % (i + 1)];
    std::memset(node->data, 7, sizeof node->data);
  }
}
