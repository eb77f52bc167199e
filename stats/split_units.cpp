// See split_units.hpp.
//
// functions_at(address)
//   split_of             the skeleton whose code holds it (read_skeletons), and the unit split from that
//     find_in_package      in PROGRAM.dwp, by the unit's id
//     find_in_file         in the .dwo file that the skeleton names, if the id is the same
//       read_scopes          where the code of all its functions and inlined calls lies
//   function_of          names and calls of those that hold the address
#include "stats/split_units.hpp"

#include <algorithm>

namespace cistern {
namespace {

using namespace dwarf;

constexpr std::uint64_t kUnitBytesMax = 64 << 20;  // takes a third of a second to read
constexpr std::size_t kSplitsMax = 16;             // with files open at the same time
constexpr std::size_t kInlinedDeepMax = 256;
constexpr unsigned kReferencesMax = 8;
constexpr std::uint64_t kRangesMax = 1 << 20;

Piece part_of(const Piece& section, std::uint64_t begin, std::uint64_t bytes) {
  if (begin > section.bytes || bytes > section.bytes - begin) return {};
  return {section.section, section.begin + begin, bytes};
}

// Finds one unit's parts of the sections of a package.
bool find_contribution(DebugFile& package, std::uint64_t id, Sections& sections) {
  // Numbers of the columns; 8 is of another section in the form from before the standard, where it is not asked for.
  enum { kInfo = 1, kAbbreviations = 3, kTextOffsets = 6, kRangeLists = 8 };
  const Piece index = package.section(".debug_cu_index");
  Cursor header(index, 0);
  const std::uint64_t version = header.number(4);
  const std::uint64_t columns = header.number(4);
  const std::uint64_t units = header.number(4);
  const std::uint64_t slots = header.number(4);
  if (header.failed() || (version != 2 && version != 5) || columns > 16 || !slots || (slots & (slots - 1)))
    return false;
  const std::uint64_t hashes = header.at();
  const std::uint64_t rows = hashes + 8 * slots;
  const std::uint64_t names = rows + 4 * slots;
  std::uint64_t slot = id & (slots - 1);
  for (std::uint64_t tries = 0;; ++tries) {
    Cursor hash(index, hashes + 8 * slot);
    if (tries == slots || hash.failed()) return false;
    if (hash.number(8) == id) break;
    slot = (slot + ((id >> 32 & (slots - 1)) | 1)) & (slots - 1);
  }
  const std::uint64_t row = Cursor(index, rows + 4 * slot).number(4);
  if (!row || row > units) return false;
  for (std::uint64_t column = 0; column < columns; ++column) {
    const std::uint64_t name = Cursor(index, names + 4 * column).number(4);
    const auto number = [&](std::uint64_t table) {
      return Cursor(index, names + 4 * (columns * (1 + table * units + row - 1) + column)).number(4);
    };
    const auto part = [&](const char* section) { return part_of(package.section(section), number(0), number(1)); };
    if (name == kInfo) sections.info = part(".debug_info.dwo");
    if (name == kAbbreviations) sections.abbreviations = part(".debug_abbrev.dwo");
    if (name == kTextOffsets) sections.text_offsets = part(".debug_str_offsets.dwo");
    if (name == kRangeLists && version == 5) sections.range_lists = part(".debug_rnglists.dwo");
  }
  sections.text = package.section(".debug_str.dwo");
  return true;
}

// In a unit by itself, the header of its part of a section stands in front of the place from which numbers count.
std::uint64_t behind_header(const Unit& unit, std::uint64_t bytes) {
  return unit.version < 5 ? 0 : bytes + (unit.offset_bytes == 8 ? 12 : 4);
}

}  // namespace

SplitUnits::SplitUnits(const String& opened, const String& program) : program_file_(opened), program_(program) {
  sections_.info = program_file_.section(".debug_info");
  sections_.abbreviations = program_file_.section(".debug_abbrev");
  sections_.text = program_file_.section(".debug_str");
  sections_.line_text = program_file_.section(".debug_line_str");
  sections_.text_offsets = program_file_.section(".debug_str_offsets");
  sections_.addresses = program_file_.section(".debug_addr");
  sections_.ranges = program_file_.section(".debug_ranges");
  sections_.range_lists = program_file_.section(".debug_rnglists");
}

// Nothing: the unit is a whole one.
std::optional<SplitUnits::Origin> SplitUnits::read_skeleton(Unit& unit, CodeExtent& extent) {
  if (unit.version == 5 ? unit.type != DW_UT_skeleton : unit.type != DW_UT_compile) return {};
  Cursor cursor(sections_.info, unit.first_entry);
  const std::uint64_t code = Cursor(cursor).unsigned_leb();
  if (!abbreviations_.read(sections_.abbreviations, unit.abbreviations_at, code)) return {};
  Value directory, file;
  Origin origin;
  std::uint64_t ranges_base = 0;
  read_entry(cursor, unit, abbreviations_, [&](std::uint32_t attribute, const Value& value) {
    extent.note(attribute, value);
    switch (attribute) {
      case DW_AT_comp_dir:
        directory = value;
        break;
      case DW_AT_dwo_name:
      case DW_AT_GNU_dwo_name:
        file = value;
        break;
      case DW_AT_GNU_dwo_id:
        unit.id = value.number;
        break;
      case DW_AT_stmt_list:
        origin.lines_at = value.number;
        break;
      case DW_AT_addr_base:
      case DW_AT_GNU_addr_base:
        unit.address_base = value.number;
        break;
      case DW_AT_str_offsets_base:
        unit.text_offsets_base = value.number;
        break;
      case DW_AT_rnglists_base:
        unit.range_lists_base = value.number;
        break;
      case DW_AT_GNU_ranges_base:
        ranges_base = value.number;
        break;
      default:
        break;
    }
  });
  if (cursor.failed() || file.form == Form::none) return {};
  unit.low = address_of(unit, extent.low).value_or(0);
  origin.unit = unit;
  origin.unit.ranges_base = ranges_base;  // counts for the ranges of the split unit only
  origin.directory = text_of(unit, directory);
  origin.file = text_of(unit, file);
  return origin;
}

void SplitUnits::note_skeleton(const Unit& header) {
  Unit unit = header;
  CodeExtent extent;
  if (!read_skeleton(unit, extent)) return;
  ranges_.clear();
  std::uint64_t steps_left = kRangesMax;
  RangeReader{ranges_, steps_left}.read(unit, extent);
  for (const CodeRange& range : ranges_) skeletons_.push({unit.begin, range.low, range.high});
}

void SplitUnits::read_skeletons() {
  are_skeletons_read_ = true;
  for (std::uint64_t at = 0; at < sections_.info.bytes;) {
    Unit unit;
    if (read_header(sections_, at, unit)) note_skeleton(unit);
    if (unit.end <= at) return;
    at = unit.end;
  }
}

SplitUnits::Split* SplitUnits::split_of(std::uint64_t address) {
  if (!are_skeletons_read_) read_skeletons();
  const Skeleton* const skeleton = std::find_if(skeletons_.begin(), skeletons_.end(), [&](const Skeleton& one) {
    return one.low <= address && address < one.high;
  });
  if (skeleton == skeletons_.end()) return nullptr;
  for (Split& known : splits_)
    if (known.skeleton_at == skeleton->at) return &known;
  if (splits_.size() == kSplitsMax) splits_.clear();
  Split& split = splits_.emplace_back(skeleton->at);
  Unit unit;
  CodeExtent extent;
  if (!read_header(sections_, skeleton->at, unit)) return &split;
  if (const auto origin = read_skeleton(unit, extent)) {
    split.lines_at = origin->lines_at;
    split.directory = origin->directory;
    if (find_in_package(split, *origin) || find_in_file(split, *origin)) read_scopes(split);
  }
  return &split;
}

DebugFile* SplitUnits::package() {
  if (!package_) {
    package_.emplace(program_ + ".dwp");
    const String real = program_file_.real_path();
    if (!package_->is_open() && real != program_) package_.emplace(real + ".dwp");
  }
  return package_->is_open() ? &*package_ : nullptr;
}

bool SplitUnits::find_in_package(Split& split, const Origin& origin) {
  DebugFile* const file = package();
  Sections sections = origin.unit.sections;
  return file && find_contribution(*file, origin.unit.id, sections) && take(split, origin, sections, 0);
}

bool SplitUnits::find_in_file(Split& split, const Origin& origin) {
  const bool is_relative = !origin.file.starts_with('/') && !origin.directory.empty();
  DebugFile& file = split.file.emplace(is_relative ? origin.directory + "/" + origin.file : origin.file);
  Sections sections = origin.unit.sections;
  sections.abbreviations = file.section(".debug_abbrev.dwo");
  sections.text = file.section(".debug_str.dwo");
  sections.text_offsets = file.section(".debug_str_offsets.dwo");
  sections.range_lists = file.section(".debug_rnglists.dwo");
  // GCC puts each unit of a type into a section of its own.
  const auto has_it = [&](const Piece& section) {
    sections.info = section;
    for (std::uint64_t at = 0; at < section.bytes; at = split.unit.end) {
      if (take(split, origin, sections, at)) return true;
      if (split.unit.end <= at) break;
    }
    return false;
  };
  if (file.section(".debug_info.dwo", has_it)) return true;
  split.file.reset();
  return false;
}

// The unit at `at`, if it is the one that was split from `origin`.
bool SplitUnits::take(Split& split, const Origin& origin, const Sections& sections, std::uint64_t at) {
  Unit& unit = split.unit;
  unit = Unit();
  if (!read_header(sections, at, unit) || unit.end - unit.begin > kUnitBytesMax ||
      unit.version != origin.unit.version || (unit.version == 5 && unit.type != DW_UT_split_compile) ||
      !split.abbreviations.read(sections.abbreviations, unit.abbreviations_at, 0))
    return false;
  if (unit.version < 5) {
    Cursor cursor(sections.info, unit.first_entry);
    read_entry(cursor, unit, split.abbreviations, [&unit](std::uint32_t attribute, const Value& value) {
      if (attribute == DW_AT_GNU_dwo_id) unit.id = value.number;
    });
  }
  unit.low = origin.unit.low;
  unit.address_base = origin.unit.address_base;
  unit.ranges_base = origin.unit.ranges_base;
  unit.text_offsets_base = behind_header(unit, 4);
  unit.range_lists_base = behind_header(unit, 8);
  return unit.id == origin.unit.id;
}

void SplitUnits::read_scopes(Split& split) {
  const Unit& unit = split.unit;
  std::uint64_t steps_left = kRangesMax;
  for (Cursor cursor(unit.sections.info, unit.first_entry); cursor.has_more(unit.end);) {
    const std::uint64_t entry = cursor.at();
    CodeExtent extent;
    const std::uint32_t tag =
        read_entry(cursor, unit, split.abbreviations,
                   [&](std::uint32_t attribute, const Value& value) { extent.note(attribute, value); });
    if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine) continue;
    ranges_.clear();
    if (!RangeReader{ranges_, steps_left}.read(unit, extent)) return;
    for (const CodeRange& range : ranges_)
      if (!split.scopes.push({range.low, range.high, entry, tag == DW_TAG_inlined_subroutine})) return;
  }
}

// As libbacktrace chooses: the mangled name, that of the entry referred to, the plain one.
String SplitUnits::symbol_of(const Split& split, std::uint64_t entry, unsigned depth) const {
  const Unit& unit = split.unit;
  Value linkage, reference, plain;
  Cursor cursor(unit.sections.info, entry);
  read_entry(cursor, unit, split.abbreviations, [&](std::uint32_t attribute, const Value& value) {
    if (attribute == DW_AT_linkage_name || attribute == DW_AT_MIPS_linkage_name) linkage = value;
    if (attribute == DW_AT_abstract_origin || attribute == DW_AT_specification) reference = value;
    if (attribute == DW_AT_name) plain = value;
  });
  String symbol = text_of(unit, linkage);
  if (symbol.empty() && reference.form == Form::reference && depth < kReferencesMax)
    symbol = symbol_of(split, unit.begin + reference.number, depth + 1);
  return symbol.empty() ? text_of(unit, plain) : symbol;
}

HoldingFunction SplitUnits::function_of(const Split& split, const Scope& scope) {
  HoldingFunction function{symbol_of(split, scope.entry, 0), {}, 0};
  if (!scope.is_inlined) return function;
  std::uint64_t file = 0;
  Cursor cursor(split.unit.sections.info, scope.entry);
  read_entry(cursor, split.unit, split.abbreviations, [&](std::uint32_t attribute, const Value& value) {
    if (attribute == DW_AT_call_file) file = value.number;
    if (attribute == DW_AT_call_line) function.call_line = static_cast<unsigned>(value.number);
  });
  Unit of_program = split.unit;
  of_program.sections = sections_;
  function.call_file =
      file_of_line_table(of_program, program_file_.section(".debug_line"), split.lines_at, file, split.directory);
  return function;
}

// Entries come in the order of the tree: of those that hold the address, each is inlined into the one before it. A
// function that is the same code as an earlier one takes its place.
Vector<HoldingFunction> SplitUnits::functions_at(std::uint64_t address) {
  Vector<HoldingFunction> functions;
  Split* const split = split_of(address);
  if (!split) return functions;
  Vector<const Scope*> holding;
  for (const Scope& scope : split->scopes) {
    if (address < scope.low || scope.high <= address) continue;
    if (!scope.is_inlined) holding.clear();
    if (scope.is_inlined == !holding.empty() && holding.size() < kInlinedDeepMax) holding.push_back(&scope);
  }
  for (std::size_t i = holding.size(); i-- > 0;) functions.push_back(function_of(*split, *holding[i]));
  return functions;
}

}  // namespace cistern
