// See rows.hpp. The function's entry is found by the sorted table that linkers make, its program is run up to
// the address, and the state there becomes a row; whatever is not known here gives none. Locks and allocates nothing.
#include "stats/unwind/rows.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "stats/unwind/unwinder.hpp"

namespace cistern::unwind {
namespace {

// As the tables number them.
#if defined(__x86_64__)
constexpr unsigned kRbp = 6, kRsp = 7, kReturnAddress = 16;
#else
constexpr unsigned kRbp = 29, kRsp = 31, kReturnAddress = 30;
#endif

struct Reader {
  const std::uint8_t* at;
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  std::uint64_t unsigned_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = take<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) return value;
    }
  }
  std::int64_t signed_leb() {
    std::int64_t value = 0;
    for (unsigned shift = 0;;) {
      const auto byte = take<std::uint8_t>();
      if (shift < 64) value |= static_cast<std::int64_t>(byte & 0x7fu) << shift;
      shift += 7;
      if (byte & 0x80) continue;
      return (byte & 0x40) && shift < 64 ? value | static_cast<std::int64_t>(~std::uint64_t{0} << shift) : value;
    }
  }
};

unsigned encoded_bytes(unsigned encoding) {
  constexpr std::uint8_t kBytes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8, 0, 0, 0};
  return (encoding & 0x70) == 0x50 ? 0 : kBytes[encoding & 15];
}

// A function's entry (FDE) with what it shares with others (CIE).
struct Function {
  const std::uint8_t *shared_program, *shared_end, *program, *end;
  std::uint64_t code_unit;
  std::int64_t data_unit;
};

constexpr std::uint8_t kTableEncodings[4] = {1, 0x1b, 0x03, 0x3b};  // version; what every linker makes
struct TableHead {
  std::uint8_t encodings[4];
  std::int32_t frames_offset;
  std::uint32_t count;
};
struct TableEntry {
  std::int32_t function, entry;  // from the head
};

bool read_shared(const std::uint8_t* at, Function& function, unsigned& encoding) {
  Reader reader{at};
  const auto bytes = reader.take<std::uint32_t>();
  if (bytes == 0 || bytes == 0xffffffff) return false;
  function.shared_end = reader.at + bytes;
  if (reader.take<std::uint32_t>() != 0) return false;
  const auto version = reader.take<std::uint8_t>();
  const auto* letters = reinterpret_cast<const char*>(reader.at);
  reader.at += std::strlen(letters) + 1;
  function.code_unit = reader.unsigned_leb();
  function.data_unit = reader.signed_leb();
  const std::uint64_t return_column = version == 1 ? reader.take<std::uint8_t>() : reader.unsigned_leb();
  if ((version != 1 && version != 3) || return_column != kReturnAddress || *letters++ != 'z') return false;
  const std::uint64_t augmentation_bytes = reader.unsigned_leb();
  function.shared_program = reader.at + augmentation_bytes;
  encoding = 0;
  for (; *letters; ++letters) {
    if (*letters == 'R') {
      encoding = reader.take<std::uint8_t>();
    } else if (*letters == 'L') {
      reader.take<std::uint8_t>();
    } else if (*letters == 'P') {
      const unsigned pointer_bytes = encoded_bytes(reader.take<std::uint8_t>());
      if (!pointer_bytes) return false;
      reader.at += pointer_bytes;
    } else if (*letters != 'B') {  // which key signs return addresses
      return false;                // 'S': the frame of a signal; others are not known here
    }
  }
  return true;
}

enum class Entry { found, none, unknown };

Entry find_function(const std::uint8_t* table, std::uintptr_t address, Function& function, std::uintptr_t& start) {
  const auto& head = *reinterpret_cast<const TableHead*>(table);
  if (std::memcmp(head.encodings, kTableEncodings, sizeof kTableEncodings) != 0 || !head.count) return Entry::unknown;
  const auto* const entries = reinterpret_cast<const TableEntry*>(&head + 1);
  const auto offset = static_cast<std::int64_t>(address - reinterpret_cast<std::uintptr_t>(table));
  const auto* const above =
      std::upper_bound(entries, entries + head.count, offset,
                       [](std::int64_t wanted, const TableEntry& entry) { return wanted < entry.function; });
  if (above == entries) return Entry::none;
  start = reinterpret_cast<std::uintptr_t>(table) + static_cast<std::intptr_t>(above[-1].function);
  Reader reader{table + above[-1].entry};
  const auto bytes = reader.take<std::uint32_t>();
  if (bytes == 0 || bytes == 0xffffffff) return Entry::unknown;
  function.end = reader.at + bytes;
  const std::uint8_t* const to_shared = reader.at;
  unsigned encoding;
  if (!read_shared(to_shared - reader.take<std::int32_t>(), function, encoding)) return Entry::unknown;
  const unsigned pointer_bytes = encoded_bytes(encoding);
  if (pointer_bytes < 4) return Entry::unknown;
  reader.at += pointer_bytes;
  const std::uint64_t length = pointer_bytes == 4 ? reader.take<std::uint32_t>() : reader.take<std::uint64_t>();
  if (address - start >= length) return Entry::none;
  const std::uint64_t augmentation_bytes = reader.unsigned_leb();
  function.program = reader.at + augmentation_bytes;
  return Entry::found;
}

// --- The program of a function's entry, run up to an address
enum class Saved : std::uint8_t { not_saved, from_cfa, from_rbp, undefined, otherwise };
struct Rule {
  Saved saved = Saved::not_saved;
  std::int64_t offset = 0;
};
struct Registers {
  std::uint64_t cfa_register = 0;
  std::int64_t cfa_offset = 0;
  bool cfa_at = false, cfa_known = false;  // at: the CFA is what lies there
  Rule rbp, return_address;

  void set(std::uint64_t number, Rule rule) {
    if (number == kRbp) rbp = rule;
    if (number == kReturnAddress) return_address = rule;
    if (number == kRsp) cfa_known = false;  // it is the CFA by definition
  }
};

struct Instruction {
  unsigned code = 0;
  std::uint64_t first = 0;
  std::int64_t second = 0;
  Reader block{nullptr};
};

// By code, the operands: unsigned and signed numbers, 1, 2 or 4 bytes, a block of bytes; '-': not known here.
constexpr const char* kOperands[] = {"",   "-", "1", "2", "4",  "uu", "u",  "u", "u",  "uu", "",  "",
                                     "uu", "u", "u", "b", "ub", "us", "us", "s", "uu", "us", "ub"};
enum Code : unsigned {
  kNop = 0x00,
  kAdvance1 = 0x02,
  kAdvance2,
  kAdvance4,
  kOffset,
  kRestore,
  kUndefined,
  kSameValue,
  kRegister,
  kRememberState,
  kRestoreState,
  kDefineCfa,
  kDefineCfaRegister,
  kDefineCfaOffset,
  kDefineCfaExpression,
  kExpression,
  kOffsetSigned,
  kDefineCfaSigned,
  kDefineCfaOffsetSigned,
  kValueOffset,
  kValueOffsetSigned,
  kValueExpression,
  kSignReturnAddress = 0x2d,
  kArgumentsSize = 0x2e,
};

bool read_instruction(Reader& reader, Instruction& instruction) {
  const auto byte = reader.take<std::uint8_t>();
  if (const unsigned packed = byte >> 6) {
    constexpr unsigned kCodes[] = {kNop, kAdvance4, kOffset, kRestore};
    instruction.code = kCodes[packed];
    instruction.first = byte & 0x3f;
    if (instruction.code == kOffset) instruction.second = static_cast<std::int64_t>(reader.unsigned_leb());
    return true;
  }
  instruction.code = byte;
  const char* operand = byte < std::size(kOperands)  ? kOperands[byte]
                        : byte == kArgumentsSize     ? "u"
                        : byte == kSignReturnAddress ? ""
                                                     : "-";
  for (bool is_first = true; *operand; ++operand, is_first = false) {
    std::uint64_t value = 0;
    switch (*operand) {
      case '1':
        value = reader.take<std::uint8_t>();
        break;
      case '2':
        value = reader.take<std::uint16_t>();
        break;
      case '4':
        value = reader.take<std::uint32_t>();
        break;
      case 'u':
        value = reader.unsigned_leb();
        break;
      case 's':
        value = static_cast<std::uint64_t>(reader.signed_leb());
        break;
      case 'b':
        value = reader.unsigned_leb();
        instruction.block = reader;
        reader.at += value;
        break;
      default:
        return false;
    }
    if (is_first) {
      instruction.first = value;
    } else {
      instruction.second = static_cast<std::int64_t>(value);
    }
  }
  return true;
}

// "rbp + offset", then perhaps a load from there, in so many bytes.
bool read_rbp_expression(Reader block, std::int64_t bytes, bool loads, std::int64_t& offset) {
  const std::uint8_t* const end = block.at + bytes;
  if (bytes < 2 || block.take<std::uint8_t>() != 0x70 + kRbp) return false;  // DW_OP_breg6
  offset = block.signed_leb();
  return (!loads || block.take<std::uint8_t>() == 0x06) && block.at == end;  // DW_OP_deref
}

class Program {
 public:
  Program(const Function& function, std::uintptr_t start, std::uintptr_t wanted)
      : function_(function), wanted_(wanted), now_(start) {}

  // The state at the address; false: not known here.
  bool run(Registers& state) {
    if (!run(function_.shared_program, function_.shared_end, state)) return false;
    initial_ = state;
    return run(function_.program, function_.end, state);
  }

 private:
  static constexpr unsigned kDepthMax = 4;

  bool run(const std::uint8_t* begin, const std::uint8_t* end, Registers& state) {
    for (Reader reader{begin}; reader.at < end && now_ <= wanted_;) {
      Instruction instruction;
      if (!read_instruction(reader, instruction) || !execute(instruction, state)) return false;
    }
    return true;
  }

  bool execute(const Instruction& instruction, Registers& state) {
    const std::uint64_t first = instruction.first;
    const std::int64_t second = instruction.second, unit = function_.data_unit;
    Rule rule{Saved::otherwise};
    switch (instruction.code) {
      case kAdvance1:
      case kAdvance2:
      case kAdvance4:
        now_ += first * function_.code_unit;
        return true;
      case kOffset:
      case kOffsetSigned:
        state.set(first, {Saved::from_cfa, second * unit});
        return true;
      case kRestore:
        state.set(first, first == kRbp ? initial_.rbp : initial_.return_address);
        return true;
      case kUndefined:
        state.set(first, {Saved::undefined});
        return true;
      case kSameValue:
        state.set(first, {Saved::not_saved});
        return true;
      case kExpression:
        if (read_rbp_expression(instruction.block, second, false, rule.offset)) rule.saved = Saved::from_rbp;
        [[fallthrough]];
      case kRegister:
      case kValueOffset:
      case kValueOffsetSigned:
      case kValueExpression:
        state.set(first, rule);
        return true;
      case kRememberState:
        if (depth_ == kDepthMax) return false;
        remembered_[depth_++] = state;
        return true;
      case kRestoreState:
        if (depth_ == 0) return false;
        state = remembered_[--depth_];
        return true;
      case kDefineCfa:
      case kDefineCfaSigned:
        state.cfa_register = first;
        state.cfa_offset = instruction.code == kDefineCfa ? second : second * unit;
        state.cfa_at = false;
        state.cfa_known = true;
        return true;
      case kDefineCfaRegister:
        state.cfa_register = first;
        return true;
      case kDefineCfaOffset:
        state.cfa_offset = static_cast<std::int64_t>(first);
        return true;
      case kDefineCfaOffsetSigned:
        state.cfa_offset = static_cast<std::int64_t>(first) * unit;
        return true;
      case kDefineCfaExpression:
        state.cfa_register = kRbp;
        state.cfa_at = state.cfa_known =
            read_rbp_expression(instruction.block, static_cast<std::int64_t>(first), true, state.cfa_offset);
        return true;
      default:
        return instruction.code == kNop || instruction.code == kArgumentsSize || instruction.code == kSignReturnAddress;
    }
  }

  const Function& function_;
  const std::uintptr_t wanted_;
  std::uintptr_t now_;
  Registers initial_, remembered_[kDepthMax];
  unsigned depth_ = 0;
};

#if defined(__x86_64__)
Row row_of(const Registers& state) {
  if (state.return_address.saved == Saved::undefined) return Row::make(Shape::outermost);
  const bool right_below_cfa = state.return_address.saved == Saved::from_cfa && state.return_address.offset == -8;
  if (!state.cfa_known || !right_below_cfa || state.cfa_offset != static_cast<std::int32_t>(state.cfa_offset))
    return {};
  const std::int64_t words = state.rbp.offset / 8;
  const bool fits = state.rbp.offset % 8 == 0 && words == static_cast<std::int8_t>(words);
  if (state.cfa_at)
    return state.rbp.saved == Saved::from_rbp && fits ? Row::make(Shape::at_rbp, state.cfa_offset, words) : Row{};
  if (state.cfa_register != kRsp && state.cfa_register != kRbp) return {};
  const Shape shape = state.cfa_register == kRsp ? Shape::from_rsp : Shape::from_rbp;
  if (state.rbp.saved == Saved::from_cfa && fits && words) return Row::make(shape, state.cfa_offset, words);
  const bool kept = state.rbp.saved == Saved::not_saved || state.rbp.saved == Saved::undefined;
  return kept ? Row::make(shape, state.cfa_offset, 0) : Row{};
}
#else
Row row_of(const Registers& state) {
  if (state.return_address.saved == Saved::undefined) return Row::make(Shape::outermost);
  const bool is_told = state.cfa_known && !state.cfa_at && (state.cfa_register == kRsp || state.cfa_register == kRbp);
  if (!is_told || state.cfa_offset < 0 || state.cfa_offset % 8 || state.cfa_offset / 8 > Row::kCfaWordsMax) return {};
  // From the register that the CFA is told from; below the CFA.
  const auto words_of = [&state](const Rule& rule, std::int64_t& words) {
    const std::int64_t offset = state.cfa_offset + rule.offset;
    words = offset / 8;
    return rule.saved == Saved::from_cfa && rule.offset < 0 && offset >= 0 && offset % 8 == 0 &&
           words <= Row::kSavedWordsMax;
  };
  std::int64_t rbp_words, return_words;
  if (!words_of(state.return_address, return_words)) return {};
  const Shape shape = state.cfa_register == kRsp ? Shape::from_rsp : Shape::from_rbp;
  if (words_of(state.rbp, rbp_words)) return Row::make(shape, state.cfa_offset / 8, rbp_words + 1, return_words);
  const bool kept = state.rbp.saved == Saved::not_saved || state.rbp.saved == Saved::undefined;
  return kept ? Row::make(shape, state.cfa_offset / 8, 0, return_words) : Row{};
}
#endif

}  // namespace

Row read_row(const void* tables, std::uintptr_t address) {
  if (!tables) return Row::make(Shape::no_entry);
  Function function;
  std::uintptr_t start;
  Registers state;
  const Entry entry = find_function(static_cast<const std::uint8_t*>(tables), address, function, start);
  if (entry != Entry::found) return entry == Entry::none ? Row::make(Shape::no_entry) : Row{};
  if (start == reinterpret_cast<std::uintptr_t>(outermost_function)) return Row::make(Shape::outermost);
  return Program(function, start, address).run(state) ? row_of(state) : Row{};
}

}  // namespace cistern::unwind
