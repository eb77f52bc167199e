// See lines.hpp. The three formats are described in CPython's Objects/lnotab_notes.txt and Objects/locations.md.
#include "stats/python/lines.hpp"

namespace cistern::python {
namespace {

int signed_byte(std::uint8_t byte) { return static_cast<std::int8_t>(byte); }

// 3.8, 3.9: the instructions until the next address have the line so far.
int by_deltas(const CodeLines& lines, std::size_t offset) {
  int line = lines.first_line;
  std::size_t address = 0;
  for (std::size_t at = 0; at + 1 < lines.bytes; at += 2) {
    address += lines.table[at];
    if (address > offset) break;
    line += signed_byte(lines.table[at + 1]);
  }
  return line;
}

// 3.10: ranges, each with its distance from the last line; -128: without a line.
int by_ranges(const CodeLines& lines, std::size_t offset) {
  constexpr int kNoLine = -128;
  int line = lines.first_line;
  std::size_t end = 0;
  for (std::size_t at = 0; at + 1 < lines.bytes; at += 2) {
    const int delta = signed_byte(lines.table[at + 1]);
    end += lines.table[at];
    if (delta != kNoLine) line += delta;
    if (offset < end) break;
  }
  return line;
}

// In groups of six bits, the lowest first; the lowest bit is the sign.
int signed_number(const CodeLines& lines, std::size_t at) {
  unsigned number = 0;
  for (unsigned shift = 0; at < lines.bytes && shift < 32; ++at, shift += 6) {
    number |= (lines.table[at] & 63u) << shift;
    if (!(lines.table[at] & 64)) break;
  }
  return number & 1 ? -static_cast<int>(number >> 1) : static_cast<int>(number >> 1);
}

// 3.11 and later: an entry begins with a byte above 127: its form, and how many instructions of two bytes it is for.
int by_entries(const CodeLines& lines, std::size_t offset) {
  constexpr unsigned kNone = 15, kLong = 14, kNoColumns = 13, kOneLineFirst = 10;
  int line = lines.first_line;
  std::size_t end = 0;
  for (std::size_t at = 0; at < lines.bytes;) {
    const unsigned form = lines.table[at] >> 3 & 15;
    end += 2 * (std::size_t{lines.table[at] & 7u} + 1);
    if (form == kLong || form == kNoColumns)
      line += signed_number(lines, at + 1);
    else if (form >= kOneLineFirst && form != kNone)
      line += static_cast<int>(form - kOneLineFirst);
    if (offset < end) break;
    while (++at < lines.bytes && !(lines.table[at] & 128)) {
    }
  }
  return line;
}

}  // namespace

unsigned line_at(const CodeLines& lines, std::size_t offset) {
  const int line = lines.kind == LineTable::pairs_of_deltas   ? by_deltas(lines, offset)
                   : lines.kind == LineTable::pairs_of_ranges ? by_ranges(lines, offset)
                                                              : by_entries(lines, offset);
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

}  // namespace cistern::python
