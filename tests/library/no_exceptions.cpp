// The C++ interface in a program without exceptions and type information: it works, and what would throw is a line and
// the end of the process.
#include <stdio.h>
#include <cistern/memory_resource.hpp>
#include <cistern/object_pool.hpp>

#include <string>
#include <vector>

int main() {
  cistern::pool pool = cistern::pool::make({.name = "plain", .bytes_max = 10000}).value();
  cistern::memory_resource memory(pool), same(pool), other;
  const bool are_told_apart =
      memory.is_equal(same) && !memory.is_equal(other) && !memory.is_equal(*std::pmr::new_delete_resource());
  cistern::object_pool<std::string> texts({.create = [] { return std::string(100, 'x'); }});
  for (int i = 0; i < 3; ++i) texts.acquire().value()->append("y");
  printf("%s, %d used again\n", are_told_apart ? "told apart" : "mixed up",
         static_cast<int>(texts.statistics().reused));
  fflush(stdout);
  std::vector<int, cistern::allocator<int>> numbers(1000, 7, cistern::allocator<int>(pool));
  std::pmr::vector<char> too_much(20000, &memory);
  printf("went on\n");
}
