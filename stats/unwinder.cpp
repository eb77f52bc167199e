// See unwinder.hpp. Rows of unwind tables, learnt once per return address; the walk by them; and who walks otherwise.
//
// The walk is as safe as the tables are right, like every unwinder's: what it reads are slots that the tables name.
// A row is final while its module is loaded. One of a module that may be unloaded is used only after a look whether
// the module is still that one; its code has a frame on this stack, so it stays at least as long as the walk.
#include "stats/unwinder.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

#include "pool/internal_memory.hpp"
#include "pool/lock.hpp"
#include "stats/modules.hpp"

namespace cistern {

#if defined(__x86_64__)
namespace {

// --- Rows: one line of a module's unwind tables (DWARF call frame information), when it has one of the few shapes that
// compilers make at calls. The caller's frame begins at the canonical frame address (CFA): right below lies its return
// address, and there rsp will point once the call has returned.
enum class Shape : std::uint8_t {
  from_rsp,   // CFA = rsp + cfa_offset
  from_rbp,   // CFA = rbp + cfa_offset
  at_rbp,     // CFA = *(rbp + cfa_offset): the function aligned its stack
  outermost,  // nobody called
  none,       // unknown or of another shape
};

// In one word, lowest bits first: where the CFA is; where the caller's rbp was saved, in words from the CFA (with
// at_rbp from rbp), 0 if it is rbp still; the shape; the number of the module in `unloadable`, 0 if it stays.
struct Row {
  std::uint64_t bits = std::uint64_t{static_cast<std::uint8_t>(Shape::none)} << 40;

  static Row make(Shape shape, std::int64_t cfa_offset, std::int64_t rbp_words) {
    return {std::uint64_t{static_cast<std::uint32_t>(cfa_offset)} |
            std::uint64_t{static_cast<std::uint8_t>(rbp_words)} << 32 |
            std::uint64_t{static_cast<std::uint8_t>(shape)} << 40};
  }
  Row of_module(std::uint64_t number) const { return {bits | number << 48}; }
  std::uintptr_t cfa_offset() const {
    return static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int32_t>(bits)});
  }
  std::uintptr_t rbp_offset() const {
    return static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int8_t>(bits >> 32)} * 8);
  }
  bool rbp_kept() const { return (bits >> 32 & 0xff) == 0; }
  Shape shape() const { return static_cast<Shape>(bits >> 40 & 0xff); }
  unsigned module() const { return static_cast<unsigned>(bits >> 48); }
  // Of a module that stays, and with the CFA at a distance from a register.
  bool is_plain() const { return bits >> 40 <= static_cast<unsigned>(Shape::from_rbp); }
};

// A module that may be unloaded. Another one at its place, were it only a rebuilt one, has another build id.
struct Unloadable {
  const char *start, *end;
  const char* id_at;  // in the first page, which every module has
  std::uint64_t id;
  bool operator==(const Unloadable&) const = default;
};

struct Slot {
  std::atomic<std::uintptr_t> address;  // 0: free; then never changed
  std::atomic<Row> row;
};
static_assert(std::atomic<Row>::is_always_lock_free && sizeof(Slot) == 16);

struct Rows {
  unsigned bits, used;
  Slot slots[];
  Slot& first(std::uintptr_t address) { return slots[(address * 0x9E3779B97F4A7C15) >> (64 - bits)]; }
  Slot* end() { return slots + (std::size_t{1} << bits) + kOverhang; }
  static constexpr unsigned kOverhang = 64;  // probes go on behind the last
  static std::size_t bytes(unsigned bits) {
    return sizeof(Rows) + ((std::size_t{1} << bits) + kOverhang) * sizeof(Slot);
  }
};

constexpr unsigned kBitsMin = 9, kBitsMax = 18;
constexpr unsigned kUnloadableMax = 4096;

constinit Lock rows_lock;  // guards insertion
constinit std::atomic<Rows*> rows{nullptr};
constinit Unloadable unloadable[kUnloadableMax] = {};
constinit unsigned unloadable_count = 1;

// --- Reading the tables
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
  if ((version != 1 && version != 3) || return_column != 16 || *letters++ != 'z') return false;
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
    } else {
      return false;  // 'S': the frame of a signal; others are not known here
    }
  }
  return true;
}

bool find_function(const std::uint8_t* table, std::uintptr_t address, Function& function, std::uintptr_t& start) {
  const auto& head = *reinterpret_cast<const TableHead*>(table);
  if (std::memcmp(head.encodings, kTableEncodings, sizeof kTableEncodings) != 0 || !head.count) return false;
  const auto* const entries = reinterpret_cast<const TableEntry*>(&head + 1);
  const auto offset = static_cast<std::int64_t>(address - reinterpret_cast<std::uintptr_t>(table));
  const auto* const above =
      std::upper_bound(entries, entries + head.count, offset,
                       [](std::int64_t wanted, const TableEntry& entry) { return wanted < entry.function; });
  if (above == entries) return false;
  start = reinterpret_cast<std::uintptr_t>(table) + static_cast<std::intptr_t>(above[-1].function);
  Reader reader{table + above[-1].entry};
  const auto bytes = reader.take<std::uint32_t>();
  if (bytes == 0 || bytes == 0xffffffff) return false;
  function.end = reader.at + bytes;
  const std::uint8_t* const to_shared = reader.at;
  unsigned encoding;
  if (!read_shared(to_shared - reader.take<std::int32_t>(), function, encoding)) return false;
  const unsigned pointer_bytes = encoded_bytes(encoding);
  if (pointer_bytes < 4) return false;
  reader.at += pointer_bytes;
  const std::uint64_t length = pointer_bytes == 4 ? reader.take<std::uint32_t>() : reader.take<std::uint64_t>();
  if (address - start >= length) return false;
  const std::uint64_t augmentation_bytes = reader.unsigned_leb();
  function.program = reader.at + augmentation_bytes;
  return true;
}

// --- The program of a function's entry, run up to an address
constexpr unsigned kRbp = 6, kRsp = 7, kReturnAddress = 16;

enum class Saved : std::uint8_t { not_saved, from_cfa, from_rbp, undefined, otherwise };
struct Rule {
  Saved saved = Saved::not_saved;
  std::int64_t offset = 0;
};
struct State {
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
  const char* operand = byte == kArgumentsSize ? "u" : byte < std::size(kOperands) ? kOperands[byte] : "-";
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
  bool run(State& state) {
    if (!run(function_.shared_program, function_.shared_end, state)) return false;
    initial_ = state;
    return run(function_.program, function_.end, state);
  }

 private:
  static constexpr unsigned kDepthMax = 4;

  bool run(const std::uint8_t* begin, const std::uint8_t* end, State& state) {
    for (Reader reader{begin}; reader.at < end && now_ <= wanted_;) {
      Instruction instruction;
      if (!read_instruction(reader, instruction) || !execute(instruction, state)) return false;
    }
    return true;
  }

  bool execute(const Instruction& instruction, State& state) {
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
        return instruction.code == kNop || instruction.code == kArgumentsSize;
    }
  }

  const Function& function_;
  const std::uintptr_t wanted_;
  std::uintptr_t now_;
  State initial_, remembered_[kDepthMax];
  unsigned depth_ = 0;
};

Row row_of(const State& state) {
  if (state.return_address.saved == Saved::undefined) return Row::make(Shape::outermost, 0, 0);
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

// --- Learning
bool find_module(std::uintptr_t address, dl_find_object& found) {
  return _dl_find_object(reinterpret_cast<void*>(address), &found) == 0 && found.dlfo_eh_frame;
}

std::uint64_t id_at(const char* at) {
  std::uint64_t id;
  std::memcpy(&id, at, sizeof id);
  return id;
}

// Where the notes of [at, end) have a build id of eight bytes or more; null: nowhere.
const char* find_id(const char* at, const char* end, std::size_t alignment) {
  const auto padded = [alignment](std::size_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  while (at + sizeof(ElfW(Nhdr)) < end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const content = at + sizeof note + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= 8 && content + 8 <= end) return content;
    at = content + padded(note.n_descsz);
  }
  return nullptr;
}

// False: without a build id it could not be told from another one.
bool describe(const dl_find_object& found, Unloadable& module) {
  constexpr std::size_t kPage = 4096;
  module.start = static_cast<const char*>(found.dlfo_map_start);
  module.end = static_cast<const char*>(found.dlfo_map_end);
  ElfW(Ehdr) header;
  std::memcpy(&header, module.start, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) > kPage) return false;
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    std::memcpy(&segment, module.start + header.e_phoff + i * sizeof segment, sizeof segment);
    const auto* const notes = reinterpret_cast<const char*>(found.dlfo_link_map->l_addr + segment.p_vaddr);
    const bool in_page = notes >= module.start && notes + segment.p_memsz <= module.start + kPage;
    if (segment.p_type != PT_NOTE || !in_page) continue;
    module.id_at = find_id(notes, notes + segment.p_memsz, segment.p_align == 8 ? 8 : 4);
    if (!module.id_at) continue;
    module.id = id_at(module.id_at);
    return true;
  }
  return false;
}

bool is_loaded_still(unsigned number, std::uintptr_t address) {
  const Unloadable& module = unloadable[number];
  dl_find_object found;
  return find_module(address - 1, found) && found.dlfo_map_start == module.start && found.dlfo_map_end == module.end &&
         id_at(module.id_at) == module.id;
}

// Its number in `unloadable`; 0: there is no room. Under the lock.
unsigned number_of(const Unloadable& module) {
  for (unsigned i = 1; i < unloadable_count; ++i)
    if (unloadable[i] == module) return i;
  if (unloadable_count == kUnloadableMax) return 0;
  unloadable[unloadable_count] = module;
  return unloadable_count++;
}

// Twice the size, with the same rows; readers may go on with the old one, so that is kept.
Rows* larger(Rows* old) {
  const unsigned bits = old ? old->bits + 1 : kBitsMin;
  if (bits > kBitsMax) return nullptr;
  void* const memory = internal_try_allocate(Rows::bytes(bits));
  if (!memory) return nullptr;
  std::memset(memory, 0, Rows::bytes(bits));
  Rows* const table = new (memory) Rows;
  table->bits = bits;
  table->used = 0;
  for (Slot* from = old ? old->slots : nullptr; old && from < old->end(); ++from) {
    const std::uintptr_t address = from->address.load(std::memory_order_relaxed);
    if (!address) continue;
    Slot* to = &table->first(address);
    while (to->address.load(std::memory_order_relaxed)) ++to;
    to->address.store(address, std::memory_order_relaxed);
    to->row.store(from->row.load(std::memory_order_relaxed), std::memory_order_relaxed);
    ++table->used;
  }
  rows.store(table, std::memory_order_release);
  return table;
}

void insert(std::uintptr_t address, Row row) {
  Rows* table = rows.load(std::memory_order_relaxed);
  if (!table || table->used >= 1u << (table->bits - 1)) table = larger(table);
  if (!table) return;
  Slot* slot = &table->first(address);
  std::uintptr_t there;
  while ((there = slot->address.load(std::memory_order_relaxed)) && there != address) {
    if (++slot == table->end() - 1) return;  // the last one stays free
  }
  slot->row.store(row, std::memory_order_relaxed);
  if (!there) ++table->used;
  slot->address.store(address, std::memory_order_release);
}

// The row of the call that returns to `address`, from the tables. It stays unknown for code without a module.
[[gnu::noinline]] Row learn(std::uintptr_t address) {
  dl_find_object found;
  if (!find_module(address - 1, found)) return {};
  Function function;
  std::uintptr_t start;
  Row row;
  if (find_function(static_cast<const std::uint8_t*>(found.dlfo_eh_frame), address - 1, function, start)) {
    State state;
    if (Program(function, start, address - 1).run(state)) row = row_of(state);
  }
  const Module* const module = module_at(address - 1);
  Locked hold(rows_lock);
  if (!module || !module->is_permanent) {
    Unloadable description;
    const unsigned number = describe(found, description) ? number_of(description) : 0;
    row = number ? row.of_module(number) : Row{};  // nobody would notice when it is gone
  }
  insert(address, row);
  return row;
}

Row find_row(Rows* table, std::uintptr_t address) {
  if (!table) [[unlikely]]
    return learn(address);
  for (Slot* slot = &table->first(address);; ++slot) {
    const std::uintptr_t there = slot->address.load(std::memory_order_acquire);
    if (there == address) [[likely]]
      return slot->row.load(std::memory_order_relaxed);
    if (!there) return learn(address);
  }
}

std::uintptr_t word_at(std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); }

// --- The walk
// Looking a row up by the address just read is a chain of loads; most of a stack was there at the thread's last walk
// already. So the rows of that are tried first: a row whose address is the one that was read is the right one.
struct Frame {
  std::uintptr_t address, cfa;  // the CFA of the frame below, as where to look for this one
  Row row;
};

constexpr int kFramesMax = 64;
constexpr unsigned kMemories = 32;

struct alignas(64) Memory {
  std::atomic<bool> busy;  // in use by a thread, or by what a signal interrupted: then nothing is remembered
  std::uint8_t latest;
  Frame walks[2][kFramesMax + 1];  // an address of 0 ends one
};

constinit Memory memories[kMemories] = {};
constinit const Frame kNothing = {};

Memory* enter_memory() {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  Memory& memory = memories[(thread >> 12) % kMemories];
  return memory.busy.exchange(true, std::memory_order_acquire) ? nullptr : &memory;
}

void leave_memory(Memory& memory, Frame* end) {
  end->address = 0;
  memory.latest ^= 1;
  memory.busy.store(false, std::memory_order_release);
}

// The row at `last` or behind it, when it is that of `address`; frames further out have a higher CFA.
Row row_of_frame(const Frame*& last, Rows* table, std::uintptr_t address, std::uintptr_t cfa) {
  if (last->address != address)
    while (last->address && last->cfa < cfa) ++last;
  return last->address == address ? last++->row : find_row(table, address);
}

constexpr std::uintptr_t kStackBytesMax = std::uintptr_t{1} << 30;

// One frame outwards, unless it is the last: then false.
struct Registers {
  std::uintptr_t cfa, rbp;
  bool leave(Row row) {
    switch (row.shape()) {
      case Shape::from_rbp:
        cfa = rbp;
        [[fallthrough]];
      case Shape::from_rsp:
        cfa += row.cfa_offset();
        if (!row.rbp_kept()) rbp = word_at(cfa + row.rbp_offset());
        return true;
      case Shape::at_rbp:
        cfa = word_at(rbp + row.cfa_offset());
        rbp = word_at(rbp + row.rbp_offset());
        return true;
      default:
        return false;
    }
  }
};

}  // namespace

[[gnu::noinline]] int unwind_stack_by_rows(void** frames, int frames_max) {
  // This function keeps a frame pointer, so the caller's registers are known.
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  Registers registers{frame + 16, word_at(frame)};
  std::uintptr_t address = word_at(frame + 8);
  Rows* const table = rows.load(std::memory_order_acquire);
  Memory* const memory = enter_memory();
  const Frame* last = memory ? memory->walks[memory->latest] : &kNothing;
  Frame* noted = memory ? memory->walks[memory->latest ^ 1] : nullptr;
  unsigned checked = 0;
  bool known = true;
  void** const begin = frames;
  for (void** const end = frames + std::min(frames_max, kFramesMax); frames != end && address;) {
    Row row = last->row;
    if (last->address == address && row.is_plain()) [[likely]] {
      ++last;
    } else {
      row = row_of_frame(last, table, address, registers.cfa);
      if (row.module() && row.module() != checked) {
        if (!is_loaded_still(row.module(), address)) row = learn(address);
        checked = row.module();
      }
    }
    if (memory) *noted++ = {address, registers.cfa, row};
    *frames++ = reinterpret_cast<void*>(address);
    const std::uintptr_t inner_cfa = registers.cfa;
    if (!registers.leave(row)) {
      known = row.shape() == Shape::outermost;
      break;
    }
    // Stacks grow downwards: where the tables are wrong the walk ends here, with what it has.
    if (registers.cfa <= inner_cfa || registers.cfa - frame > kStackBytesMax || registers.cfa % 8) break;
    address = word_at(registers.cfa - 8);
  }
  if (memory) leave_memory(*memory, noted);
  return known ? static_cast<int>(frames - begin) : -1;
}

void unwinder_before_fork() { rows_lock.lock(); }
void unwinder_after_fork() { rows_lock.unlock(); }
#else
int unwind_stack_by_rows(void**, int) { return -1; }
void unwinder_before_fork() {}
void unwinder_after_fork() {}
#endif

// --- The others
namespace {

using Unwinder = int (*)(void** frames, int frames_max);

struct Walk {
  void** frames;
  int count, frames_max;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const _Unwind_Ptr address = _Unwind_GetIP(context);
  if (!address || walk.count == walk.frames_max) return _URC_END_OF_STACK;
  walk.frames[walk.count++] = reinterpret_cast<void*>(address);
  return _URC_NO_REASON;
}

constinit std::atomic<Unwinder> other_unwinder{unwind_stack_with_libgcc};

}  // namespace

int unwind_stack_with_libgcc(void** frames, int frames_max) {
  Walk walk{frames, 0, frames_max};
  _Unwind_Backtrace(note_frame, &walk);
  return walk.count;
}

int unwind_stack(void** frames, int frames_max) {
  const int count = unwind_stack_by_rows(frames, frames_max);
  return count >= 0 ? count : other_unwinder.load(std::memory_order_acquire)(frames, frames_max);
}

void prepare_unwinder() {
  if (other_unwinder.load(std::memory_order_relaxed) != unwind_stack_with_libgcc) return;
  // libunwind locks a mutex when a thread ends, behind ThreadSanitizer's own end of the thread: that would crash.
  if (dlsym(RTLD_DEFAULT, "__tsan_init")) return;
  // Local: it exports an exception unwinder of its own, which must not reach the program.
  void* library = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return;
  const auto fast = reinterpret_cast<Unwinder>(dlsym(library, "unw_backtrace"));
  void* frames[8];
  // Its first call fills caches; it must see this function and its caller at least.
  if (fast && fast(frames, 8) > 1) other_unwinder.store(fast, std::memory_order_release);
}

}  // namespace cistern
