// The terminal while `cistern top` has it: a screen of its own, keys without their echo. The screen and settings of
// before come back however the program ends, and while it is stopped.
#pragma once
#include <string_view>

#include "stats/formats/top.hpp"

namespace cistern::command {

class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  formats::Screen size() const;
  void show(std::string_view lines) const;
  // Waits so long. False: the user wants to leave, by `q` or a signal that ends programs.
  bool wait(double seconds) const;
};

}  // namespace cistern::command
