// Where CPython keeps what a stack of Python frames is read from, by version: 3.8 to 3.14, as its headers have it
// (https://github.com/python/cpython, Include/internal). Nothing of CPython is included or linked.
//
// Room: frames of Python code, read from the interpreter's own structures.
// May include: pool/base.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern::python {

// How lines are told from instructions.
enum class LineTable : std::uint8_t { pairs_of_deltas, pairs_of_ranges, entries };
// What ends the Python frames that one call of the interpreter's function runs: each frame, a frame with a flag, or one
// that stands for the C caller and is no Python frame.
enum class RunEnd : std::uint8_t { every_frame, flagged_frame, callers_frame };

// Offsets in bytes. 0: there is none.
struct Layout {
  unsigned minor = 0;
  LineTable lines{};
  RunEnd run_end{};
  // Of a thread's state: its frame, or what holds that (frame_in_holder; -1: nothing does), and pthread_self().
  std::uint16_t state_frame = 0, state_thread = 0;
  std::int16_t frame_in_holder = -1;
  std::uint16_t frame_previous = 0, frame_code = 0, frame_instruction = 0, frame_owner = 0, frame_is_entry = 0;
  std::uint16_t code_name = 0, code_file = 0, code_first_line = 0, code_table = 0;
  std::uint16_t code_first_traceable = 0, code_start = 0, code_version = 0;
  std::uint8_t owner_generator = 0, owner_caller = 0;  // the least of those that stand for a C caller
  std::uint16_t string_data_ascii = 0, string_data = 0;

  // An int, and not an address.
  constexpr bool instruction_is_index() const { return !code_start; }
};

// Null: that version is not known.
const Layout* layout_of(unsigned major, unsigned minor);

}  // namespace cistern::python
