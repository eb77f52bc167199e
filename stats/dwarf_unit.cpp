// See dwarf_unit.hpp.
#include "stats/dwarf_unit.hpp"

#include <algorithm>
#include <iterator>

namespace cistern::dwarf {
namespace {

constexpr std::uint8_t kAddressBytes = 8;
constexpr std::uint32_t kAttributesMax = 128;
constexpr std::uint64_t kFilesMax = 1 << 20;

// A length that says of itself how long offsets are.
std::uint64_t read_length(Cursor& cursor, std::uint8_t& offset_bytes) {
  const std::uint64_t length = cursor.number(4);
  offset_bytes = length == 0xffffffff ? 8 : 4;
  if (offset_bytes == 8) return cursor.number(8);
  if (length >= 0xfffffff0) cursor.fail();
  return length;
}

Value skipped(Cursor& cursor, std::uint64_t bytes) {
  cursor.skip(bytes);
  return {};
}

std::optional<std::uint64_t> entry_of(const Piece& table, std::uint64_t base, std::uint64_t number,
                                      std::uint8_t bytes) {
  if (number > table.bytes) return {};
  Cursor cursor(table, base + number * bytes);
  const std::uint64_t entry = cursor.number(bytes);
  if (cursor.failed()) return {};
  return entry;
}

}  // namespace

bool Abbreviations::read(const Piece& section, std::uint64_t at, std::uint64_t last_code) {
  all_.clear();
  specs_.clear();
  Cursor cursor(section, at);
  while (const std::uint64_t code = cursor.unsigned_leb()) {
    One one{code, static_cast<std::uint32_t>(cursor.unsigned_leb()), static_cast<std::uint32_t>(specs_.size()), 0};
    cursor.number(1);  // whether it has children
    for (;; ++one.count) {
      Spec spec{static_cast<std::uint32_t>(cursor.unsigned_leb()), static_cast<std::uint32_t>(cursor.unsigned_leb()),
                0};
      constexpr std::uint32_t kImplicitConstant = 0x21;
      if (spec.form == kImplicitConstant) spec.constant = cursor.signed_leb();
      if (!spec.attribute && !spec.form) break;
      if (one.count == kAttributesMax || !specs_.push(spec)) return false;
    }
    if (cursor.failed() || !all_.push(one)) return false;
    if (code == last_code) return true;
  }
  return !cursor.failed();
}

// Compilers number them from 1.
const Abbreviations::One* Abbreviations::find(std::uint64_t code) const {
  if (code - 1 < all_.size() && all_[code - 1].code == code) return &all_[code - 1];
  const One* const one = std::find_if(all_.begin(), all_.end(), [code](const One& each) { return each.code == code; });
  return one == all_.end() ? nullptr : one;
}

bool read_header(const Sections& sections, std::uint64_t at, Unit& unit) {
  unit.sections = sections;
  Cursor cursor(sections.info, at);
  unit.begin = at;
  const std::uint64_t length = read_length(cursor, unit.offset_bytes);
  const std::uint64_t body = cursor.at();
  cursor.skip(length);
  if (cursor.failed()) return false;
  unit.end = cursor.at();
  cursor = Cursor(sections.info, body);
  unit.version = static_cast<std::uint16_t>(cursor.number(2));
  unit.type = DW_UT_compile;
  std::uint64_t address_bytes;
  if (unit.version == 5) {
    unit.type = static_cast<std::uint8_t>(cursor.number(1));
    address_bytes = cursor.number(1);
    unit.abbreviations_at = cursor.number(unit.offset_bytes);
    if (unit.type == DW_UT_skeleton || unit.type == DW_UT_split_compile) unit.id = cursor.number(8);
  } else {
    unit.abbreviations_at = cursor.number(unit.offset_bytes);
    address_bytes = cursor.number(1);
  }
  unit.first_entry = cursor.at();
  return !cursor.failed() && cursor.at() <= unit.end && address_bytes == kAddressBytes && unit.version >= 2 &&
         unit.version <= 5;
}

Value read_value(Cursor& cursor, std::uint32_t form, std::uint64_t constant, const Unit& unit) {
  switch (form) {  // the DWARF standard, section 7.5.6
    case 0x01:
      return {Form::address, cursor.number(kAddressBytes)};
    case 0x03:
      return skipped(cursor, cursor.number(2));  // block2
    case 0x04:
      return skipped(cursor, cursor.number(4));  // block4
    case 0x05:
      return {Form::constant, cursor.number(2)};  // data
    case 0x06:
      return {Form::constant, cursor.number(4)};
    case 0x07:
      return {Form::constant, cursor.number(8)};
    case 0x08: {  // string
      const std::uint64_t at = cursor.at();
      cursor.skip_text();
      return {Form::text, at};
    }
    case 0x09:
    case 0x18:
      return skipped(cursor, cursor.unsigned_leb());  // block, exprloc
    case 0x0a:
      return skipped(cursor, cursor.number(1));  // block1
    case 0x0b:
    case 0x0c:
      return {Form::constant, cursor.number(1)};  // data1, flag
    case 0x0d:
      return {Form::constant, cursor.signed_leb()};
    case 0x0e:
      return {Form::text_offset, cursor.number(unit.offset_bytes)};
    case 0x0f:
      return {Form::constant, cursor.unsigned_leb()};
    case 0x10:
    case 0x1d:
    case 0x1f20:
    case 0x1f21:
      return skipped(cursor, unit.offset_bytes);  // to other files
    case 0x11:
      return {Form::reference, cursor.number(1)};
    case 0x12:
      return {Form::reference, cursor.number(2)};
    case 0x13:
      return {Form::reference, cursor.number(4)};
    case 0x14:
      return {Form::reference, cursor.number(8)};
    case 0x15:
      return {Form::reference, cursor.unsigned_leb()};
    case 0x17:
      return {Form::section_offset, cursor.number(unit.offset_bytes)};
    case 0x19:
      return {Form::constant, 1};  // flag_present
    case 0x1a:
    case 0x1f02:
      return {Form::text_number, cursor.unsigned_leb()};
    case 0x1b:
    case 0x1f01:
      return {Form::address_number, cursor.unsigned_leb()};
    case 0x1c:
      return skipped(cursor, 4);  // ref_sup4
    case 0x1e:
      return skipped(cursor, 16);  // data16
    case 0x1f:
      return {Form::line_text_offset, cursor.number(unit.offset_bytes)};
    case 0x20:
    case 0x24:
      return skipped(cursor, 8);  // ref_sig8, ref_sup8
    case 0x21:
      return {Form::constant, constant};
    case 0x22:
      cursor.unsigned_leb();
      return {};  // loclistx
    case 0x23:
      return {Form::ranges_number, cursor.unsigned_leb()};
    case 0x25:
    case 0x26:
    case 0x27:
    case 0x28:
      return {Form::text_number, cursor.number(form - 0x24)};
    case 0x29:
    case 0x2a:
    case 0x2b:
    case 0x2c:
      return {Form::address_number, cursor.number(form - 0x28)};
    default:
      cursor.fail();
      return {};  // its length is not known (0x16, indirect: no compiler makes it)
  }
}

String text_of(const Unit& unit, const Value& value) {
  switch (value.form) {
    case Form::text:
      return Cursor(unit.sections.info, value.number).text();
    case Form::text_offset:
      return Cursor(unit.sections.text, value.number).text();
    case Form::line_text_offset:
      return Cursor(unit.sections.line_text, value.number).text();
    case Form::text_number: {
      const auto at = entry_of(unit.sections.text_offsets, unit.text_offsets_base, value.number, unit.offset_bytes);
      return at ? Cursor(unit.sections.text, *at).text() : String();
    }
    default:
      return {};
  }
}

std::optional<std::uint64_t> address_of(const Unit& unit, const Value& value) {
  if (value.form == Form::address) return value.number;
  if (value.form != Form::address_number) return {};
  return entry_of(unit.sections.addresses, unit.address_base, value.number, kAddressBytes);
}

// Code that the linker left out is said to lie at 0.
bool RangeReader::add(std::uint64_t low, std::uint64_t high) {
  if (steps_left == 0) return false;
  --steps_left;
  return !low || low >= high || found.push({low, high});
}

bool RangeReader::read(const Unit& unit, const CodeExtent& extent) {
  const Value& ranges = extent.ranges;
  if (ranges.form == Form::ranges_number) {
    const auto at = entry_of(unit.sections.range_lists, unit.range_lists_base, ranges.number, unit.offset_bytes);
    return !at || read_list(unit, unit.range_lists_base + *at);
  }
  // DWARF 3 and older has offsets as plain numbers.
  if (ranges.form == Form::section_offset || ranges.form == Form::constant)
    return unit.version == 5 ? read_list(unit, ranges.number) : read_pairs(unit, unit.ranges_base + ranges.number);
  const auto low = address_of(unit, extent.low);
  if (!low) return true;
  if (extent.high.form == Form::constant) return add(*low, *low + extent.high.number);
  const auto high = address_of(unit, extent.high);
  return !high || add(*low, *high);
}

// .debug_ranges of DWARF 4.
bool RangeReader::read_pairs(const Unit& unit, std::uint64_t at) {
  std::uint64_t base = unit.low;
  for (Cursor cursor(unit.sections.ranges, at); !cursor.failed();) {
    const std::uint64_t low = cursor.number(kAddressBytes);
    const std::uint64_t high = cursor.number(kAddressBytes);
    if (cursor.failed() || (!low && !high)) break;
    if (low == ~std::uint64_t{0})
      base = high;
    else if (!add(base + low, base + high))
      return false;
  }
  return true;
}

// .debug_rnglists: the DWARF standard, section 7.25.
bool RangeReader::read_list(const Unit& unit, std::uint64_t at) {
  std::uint64_t base = unit.low;
  Cursor cursor(unit.sections.range_lists, at);
  const auto address = [&] { return cursor.number(kAddressBytes); };
  const auto numbered_address = [&] {
    const auto found_address = address_of(unit, {Form::address_number, cursor.unsigned_leb()});
    if (!found_address) cursor.fail();
    return found_address.value_or(0);
  };
  while (!cursor.failed()) {
    CodeRange range{};
    switch (cursor.number(1)) {
      case 1:
        base = numbered_address();
        continue;
      case 2:
        range.low = numbered_address();
        range.high = numbered_address();
        break;
      case 3:
        range.low = numbered_address();
        range.high = range.low + cursor.unsigned_leb();
        break;
      case 4:
        range.low = base + cursor.unsigned_leb();
        range.high = base + cursor.unsigned_leb();
        break;
      case 5:
        base = address();
        continue;
      case 6:
        range.low = address();
        range.high = address();
        break;
      case 7:
        range.low = address();
        range.high = range.low + cursor.unsigned_leb();
        break;
      default:
        return true;  // the end
    }
    if (!cursor.failed() && !add(range.low, range.high)) return false;
  }
  return true;
}

namespace {

String joined(const String& directory, const String& file) {
  return file.starts_with('/') || directory.empty() ? file : directory + "/" + file;
}

// A table of DWARF 5's line header, of folders or of files: calls take(number, name, folder's number) for each.
template <class Take>
void read_names(Cursor& cursor, const Unit& unit, Take&& take) {
  struct {
    std::uint64_t content, form;
  } formats[16];
  const std::uint64_t format_count = cursor.number(1);
  if (format_count > std::size(formats)) return cursor.fail();
  for (std::uint64_t i = 0; i < format_count; ++i) {
    formats[i].content = cursor.unsigned_leb();
    formats[i].form = cursor.unsigned_leb();
  }
  const std::uint64_t count = cursor.unsigned_leb();
  if (count > kFilesMax) return cursor.fail();  // each may be of no bytes
  for (std::uint64_t number = 0; number < count && !cursor.failed(); ++number) {
    constexpr std::uint64_t kPath = 1, kFolder = 2;
    Value name, folder;
    for (std::uint64_t i = 0; i < format_count; ++i) {
      const Value value = read_value(cursor, static_cast<std::uint32_t>(formats[i].form), 0, unit);
      if (formats[i].content == kPath) name = value;
      if (formats[i].content == kFolder) folder = value;
    }
    if (!cursor.failed()) take(number, name, folder.number);
  }
}

String file_of_names(Cursor& cursor, const Unit& of_lines, std::uint64_t file) {
  Cursor folders = cursor;
  Value name;
  std::uint64_t folder = 0;
  bool is_found = false;
  read_names(cursor, of_lines, [](std::uint64_t, const Value&, std::uint64_t) {});
  read_names(cursor, of_lines, [&](std::uint64_t number, const Value& its_name, std::uint64_t its_folder) {
    if (number != file) return;
    name = its_name;
    folder = its_folder;
    is_found = true;
  });
  if (!is_found) return {};
  String directory;
  read_names(folders, of_lines, [&](std::uint64_t number, const Value& its_name, std::uint64_t) {
    if (number == folder) directory = text_of(of_lines, its_name);
  });
  return joined(directory, text_of(of_lines, name));
}

// DWARF 4's, which count from 1: 0 is the compiler's own folder.
String file_of_lists(Cursor& cursor, std::uint64_t file, const String& compiled_in) {
  Cursor folders = cursor;
  const auto text_at_end_of_list = [](Cursor& list) {
    Cursor ahead = list;
    return ahead.number(1) == 0;
  };
  while (!text_at_end_of_list(cursor)) cursor.skip_text();
  cursor.skip(1);
  const auto skip_numbers = [&cursor] {  // folder, time, length
    for (int i = 0; i < 3; ++i) cursor.unsigned_leb();
  };
  for (std::uint64_t number = 1; number < file && !text_at_end_of_list(cursor); ++number) {
    cursor.skip_text();
    skip_numbers();
  }
  const String name = cursor.text();
  const std::uint64_t folder = cursor.unsigned_leb();
  if (!file || name.empty()) return {};
  for (std::uint64_t number = 1; number < folder && !text_at_end_of_list(folders); ++number) folders.skip_text();
  return joined(folder ? folders.text() : compiled_in, name);
}

}  // namespace

String file_of_line_table(const Unit& unit, const Piece& lines, std::uint64_t at, std::uint64_t file,
                          const String& directory) {
  Unit of_lines = unit;
  of_lines.sections.info = lines;
  Cursor cursor(lines, at);
  read_length(cursor, of_lines.offset_bytes);
  const std::uint64_t version = cursor.number(2);
  if (version < 2 || version > 5) return {};
  if (version == 5) cursor.skip(2);    // sizes of addresses and segments
  cursor.skip(of_lines.offset_bytes);  // the header's length
  cursor.skip(version < 4 ? 1 : 2);    // length of instructions, their number in one bundle
  cursor.skip(3);                      // whether lines begin statements, their lowest step, its range
  const std::uint64_t opcodes = cursor.number(1);
  cursor.skip(opcodes ? opcodes - 1 : 0);
  return version == 5 ? file_of_names(cursor, of_lines, file) : file_of_lists(cursor, file, directory);
}

}  // namespace cistern::dwarf
