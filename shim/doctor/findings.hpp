// The lines of the doctor: one per finding, as it is found.
#pragma once
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::doctor {

class Findings {
 public:
  void ok(const String& text) { line("ok       ", text); }
  // Does not keep memory from being caught, or not all of it.
  void note(const String& text) { line("note     ", text); }
  // Keeps it from being caught.
  void problem(const String& text) {
    line("problem  ", text);
    ++problems_;
  }
  int problems() const { return problems_; }

 private:
  static void line(std::string_view severity, const String& text);
  int problems_ = 0;
};

}  // namespace cistern::doctor
