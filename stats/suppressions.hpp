// Suppressions: leaks that the user knows and accepts. Rules as LeakSanitizer has them, one "leak:PATTERN" a line, from
// the user's file, and behind them a built-in list (suppressions.def).
#pragma once
#include <string_view>

#include "stats/snapshot.hpp"

namespace cistern {

// Whether `pattern` is found in `text`: '*' is anything, a leading '^' and a trailing '$' its begin and end.
bool pattern_matches(std::string_view pattern, std::string_view text);

class Suppressions {
 public:
  // Empty lines and those that begin with '#' say nothing.
  void read(std::string_view file);
  const Vector<unsigned>& lines_that_are_no_rule() const { return no_rules_; }
  // Patterns such as "*", which also suppress leaks that are not known yet.
  Vector<String> patterns_of_anything() const;
  // Lists the rules, and marks leaks and host sites by the first one that names a function, source file or module of
  // their stack.
  void mark(Snapshot& snapshot) const;

 private:
  Vector<String> user_;
  Vector<unsigned> no_rules_;
};

// Adds up what each rule did, row by row as they are listed. Built-in ones that did nothing are left out.
void count_suppressed(Snapshot& snapshot);

}  // namespace cistern
