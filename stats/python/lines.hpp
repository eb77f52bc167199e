// The line of an instruction, from a code object's table of lines. Scans; allocates nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#include "stats/python/layout.hpp"

namespace cistern::python {

struct CodeLines {
  LineTable kind;
  const std::uint8_t* table;
  std::size_t bytes;
  int first_line;
};

// `offset`: of the instruction, in bytes. An instruction without a line has that of those before it.
unsigned line_at(const CodeLines& lines, std::size_t offset);

}  // namespace cistern::python
