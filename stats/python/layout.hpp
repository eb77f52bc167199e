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
// The frame that ends those that one call of the interpreter's function runs: each frame, a frame with a flag, or one
// that stands for the C caller and is not a Python frame.
enum class RunEnd : std::uint8_t { every_frame, flagged_frame, callers_frame };

// Offsets in bytes. 0: there is none.
struct Layout {
  unsigned minor = 0;
  LineTable lines{};
  RunEnd run_end{};
  // Offsets in a thread's state: its frame, or the holder of that (frame_in_holder; -1: there is none), and
  // pthread_self().
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

// 3.8: a frame object for each frame.
constexpr Layout with_frame_objects() {
  Layout layout;
  layout.minor = 8;
  layout.lines = LineTable::pairs_of_deltas;
  layout.run_end = RunEnd::every_frame;
  layout.state_frame = 24, layout.state_thread = 176;
  layout.frame_previous = 24, layout.frame_code = 32, layout.frame_instruction = 104;
  layout.code_name = 112, layout.code_file = 104, layout.code_first_line = 40, layout.code_table = 120;
  layout.string_data_ascii = 48, layout.string_data = 72;
  return layout;
}

constexpr Layout like_3_8(unsigned minor) {
  Layout layout = with_frame_objects();
  layout.minor = minor;
  return layout;
}

constexpr Layout of_3_10() {
  Layout layout = like_3_8(10);
  layout.lines = LineTable::pairs_of_ranges;
  layout.frame_instruction = 96;
  return layout;
}

// 3.11: frames without objects, many in one call of the interpreter's function.
constexpr Layout of_3_11() {
  Layout layout;
  layout.minor = 11;
  layout.lines = LineTable::entries;
  layout.run_end = RunEnd::flagged_frame;
  layout.state_frame = 56, layout.state_thread = 152, layout.frame_in_holder = 8;
  layout.frame_previous = 48, layout.frame_code = 32, layout.frame_instruction = 56;
  layout.frame_owner = 69, layout.frame_is_entry = 68;
  layout.code_name = 128, layout.code_file = 112, layout.code_first_line = 72, layout.code_table = 136;
  layout.code_first_traceable = 168, layout.code_start = 184;
  layout.owner_generator = 1, layout.owner_caller = 255;
  layout.string_data_ascii = 48, layout.string_data = 72;
  return layout;
}

constexpr Layout of_3_12() {
  Layout layout = of_3_11();
  layout.minor = 12;
  layout.run_end = RunEnd::callers_frame;
  layout.state_thread = 136, layout.frame_in_holder = 0;
  layout.frame_previous = 8, layout.frame_code = 0;
  layout.frame_owner = 70, layout.frame_is_entry = 0;
  layout.code_first_line = 68;
  layout.code_first_traceable = 176, layout.code_start = 192, layout.code_version = 92;
  layout.owner_caller = 3;
  layout.string_data_ascii = 40, layout.string_data = 56;
  return layout;
}

constexpr Layout of_3_13() {
  Layout layout = of_3_12();
  layout.minor = 13;
  layout.state_frame = 72, layout.state_thread = 152, layout.frame_in_holder = -1;
  layout.code_first_traceable = 184, layout.code_start = 200;
  return layout;
}

constexpr Layout of_3_14() {
  Layout layout = of_3_13();
  layout.minor = 14;
  layout.frame_owner = 74;
  layout.code_first_traceable = 192, layout.code_start = 208;
  return layout;
}

inline constexpr Layout kLayouts[] = {like_3_8(8), like_3_8(9), of_3_10(), of_3_11(), of_3_12(), of_3_13(), of_3_14()};

// Null: that version is not known.
constexpr const Layout* layout_of(unsigned major, unsigned minor) {
  for (const Layout& layout : kLayouts)
    if (major == 3 && layout.minor == minor) return &layout;
  return nullptr;
}

}  // namespace cistern::python
