// One unit of DWARF 4 or 5: its header, the values of its entries, and what those refer to. Only what the reader of
// split units asks for (split_units.hpp); libbacktrace reads all else.
#pragma once
#include <optional>

#include "stats/debug_file.hpp"
#include "stats/growing.hpp"

namespace cistern::dwarf {

// The DWARF standard's, section 7.5; GNU: its extension of DWARF 4 from before splitting was in the standard.
enum Tag : std::uint32_t { DW_TAG_inlined_subroutine = 0x1d, DW_TAG_subprogram = 0x2e };
enum UnitType : std::uint8_t { DW_UT_compile = 1, DW_UT_skeleton = 4, DW_UT_split_compile = 5 };
enum Attribute : std::uint32_t {
  DW_AT_name = 0x03,
  DW_AT_stmt_list = 0x10,
  DW_AT_low_pc = 0x11,
  DW_AT_high_pc = 0x12,
  DW_AT_comp_dir = 0x1b,
  DW_AT_abstract_origin = 0x31,
  DW_AT_specification = 0x47,
  DW_AT_ranges = 0x55,
  DW_AT_call_file = 0x58,
  DW_AT_call_line = 0x59,
  DW_AT_linkage_name = 0x6e,
  DW_AT_str_offsets_base = 0x72,
  DW_AT_addr_base = 0x73,
  DW_AT_rnglists_base = 0x74,
  DW_AT_dwo_name = 0x76,
  DW_AT_MIPS_linkage_name = 0x2007,
  DW_AT_GNU_dwo_name = 0x2130,
  DW_AT_GNU_dwo_id = 0x2131,
  DW_AT_GNU_ranges_base = 0x2132,
  DW_AT_GNU_addr_base = 0x2133,
};

// The meaning of a number before the place that it refers to is looked up.
enum class Form : std::uint8_t {
  none,  // not used here
  constant,
  address,
  address_number,  // in .debug_addr
  text,            // where it lies among the entries
  text_offset,     // in .debug_str
  line_text_offset,
  text_number,  // in .debug_str_offsets
  reference,    // to an entry of the unit, from its begin
  section_offset,
  ranges_number,
};
struct Value {
  Form form = Form::none;
  std::uint64_t number = 0;
};

struct CodeRange {
  std::uint64_t low, high;
};

class Abbreviations {
 public:
  struct Spec {
    std::uint32_t attribute, form;
    std::uint64_t constant;
  };
  struct One {
    std::uint64_t code;
    std::uint32_t tag, first, count;
  };

  // Up to the one of `last_code`, or all with 0. False: damaged, or too many.
  bool read(const Piece& section, std::uint64_t at, std::uint64_t last_code);
  const One* find(std::uint64_t code) const;
  const Spec* specs(const One& one) const { return specs_.begin() + one.first; }

 private:
  Growing<One> all_{1 << 16};
  Growing<Spec> specs_{1 << 20};
};

// The sections that a unit refers to. A split unit has some of them in the file that it was split from.
struct Sections {
  Piece info, abbreviations, text, line_text, text_offsets, addresses, ranges, range_lists;
};

struct Unit {
  Sections sections;
  // Within sections.info.
  std::uint64_t begin = 0, end = 0, first_entry = 0;
  std::uint64_t abbreviations_at = 0;
  std::uint64_t id = 0;
  std::uint16_t version = 0;
  std::uint8_t type = 0;  // a UnitType; of DWARF 4 DW_UT_compile
  std::uint8_t offset_bytes = 4;
  // The bases of numbers.
  std::uint64_t text_offsets_base = 0, address_base = 0, range_lists_base = 0, ranges_base = 0;
  std::uint64_t low = 0;  // the unit's lowest address: offsets of ranges count from it
};

// The header at `at`, whose end then is where the next one begins. False: damaged, or of a version that is not read.
bool read_header(const Sections& sections, std::uint64_t at, Unit& unit);

// One value, of which the cursor is moved to the end.
Value read_value(Cursor& cursor, std::uint32_t form, std::uint64_t constant, const Unit& unit);

// Nothing where it is none, or is not there.
String text_of(const Unit& unit, const Value& value);
std::optional<std::uint64_t> address_of(const Unit& unit, const Value& value);

// Calls visit(attribute, value) for all of the entry that `cursor` stands at, and moves it to the next entry. The tag;
// 0: none stands there, children end.
template <class Visit>
std::uint32_t read_entry(Cursor& cursor, const Unit& unit, const Abbreviations& abbreviations, Visit&& visit) {
  const std::uint64_t code = cursor.unsigned_leb();
  if (!code) return 0;
  const Abbreviations::One* const one = abbreviations.find(code);
  if (!one) {
    cursor.fail();
    return 0;
  }
  const Abbreviations::Spec* const specs = abbreviations.specs(*one);
  for (std::uint32_t i = 0; i < one->count && !cursor.failed(); ++i)
    visit(specs[i].attribute, read_value(cursor, specs[i].form, specs[i].constant, unit));
  return one->tag;
}

// Where code lies, by the attributes of an entry.
struct CodeExtent {
  Value low, high, ranges;

  void note(std::uint32_t attribute, const Value& value) {
    if (attribute == DW_AT_low_pc) low = value;
    if (attribute == DW_AT_high_pc) high = value;
    if (attribute == DW_AT_ranges) ranges = value;
  }
};

// Adds each range that is not empty; `steps_left` counts down with what was read. False: there is no more room, or
// nothing left of the steps.
struct RangeReader {
  Growing<CodeRange>& found;
  std::uint64_t& steps_left;

  bool read(const Unit& unit, const CodeExtent& extent);

 private:
  bool add(std::uint64_t low, std::uint64_t high);
  bool read_pairs(const Unit& unit, std::uint64_t at);
  bool read_list(const Unit& unit, std::uint64_t at);
};

// Number `file` of the line table at `at` in `lines`, with its folder; `directory` is the compiler's.
String file_of_line_table(const Unit& unit, const Piece& lines, std::uint64_t at, std::uint64_t file,
                          const String& directory);

}  // namespace cistern::dwarf
