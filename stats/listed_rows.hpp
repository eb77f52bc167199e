// Rows of a snapshot as reports list them: worst first, and those that a reader could not tell apart as one.
#pragma once
#include <functional>

#include "stats/snapshot.hpp"

namespace cistern {

bool is_worse(const LeakFigures& one, const LeakFigures& other);
void sort_worst_first(Vector<LeakFigures>& leaks);

// `row` stands for the blocks of `more` too. Its frames stay.
void add(LeakFigures& row, const LeakFigures& more);

// The text by which rows with equal stacks are kept apart.
String kept_apart_by(const LeakFigures& leak);

// Rows become one if nothing keeps them apart and their frames all look alike. A compiler that repeats a call makes
// several call sites of one line, and so does native code below a line of Python. Suppressed rows are marked before: a
// rule may name a frame that is folded.
void merge_alike(Snapshot& snapshot);

// Groups `rows` by `key`; `add(first, more)` puts those that follow into the first of their key.
template <class Row, class Key, class Add>
Vector<Row> merged_by(Vector<Row> rows, Key key, Add add) {
  struct Hash {
    std::size_t operator()(const String& text) const { return std::hash<std::string_view>()(text); }
  };
  Map<String, std::size_t, Hash> places;
  Vector<Row> merged;
  for (Row& row : rows) {
    const auto [entry, is_new] = places.try_emplace(key(row), merged.size());
    if (is_new)
      merged.push_back(std::move(row));
    else
      add(merged[entry->second], row);
  }
  return merged;
}

}  // namespace cistern
