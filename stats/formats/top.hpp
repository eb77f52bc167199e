// The screens of `cistern top`: running processes in a table, and one of them with its kinds of memory and the call
// sites that grow.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

struct Screen {
  std::size_t columns = 80, rows = 24;
};

struct Watched {
  long pid;
  std::string program;
  const Report* report;  // null: the process did not answer
};
std::string process_table(const std::vector<Watched>& processes, const Screen& screen);

// Of one process. `before`: the same so many seconds earlier; null: this is the first look.
struct Look {
  const Run* run;
  const Run* before = nullptr;
  double seconds = 0;
};
std::string process_screen(const Watched& process, const Look& look, const Screen& screen);

}  // namespace cistern::formats
