// See frames.hpp. Places live in a hash table of immutable entries that is read without a lock and never shrinks.
#include "stats/python/frames.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "pool/base/lock.hpp"
#include "stats/python/lines.hpp"

namespace cistern::python {

// What a code object was when it was seen. Another one at the same address differs in one of these.
struct Code {
  Code* next;
  const char* object;
  const void *name_object, *file_object, *table_object;
  int first_line;
  unsigned version;  // its own number, where code objects have one
  String function, file, table;
};

const String& Place::function() const { return code->function; }
const String& Place::file() const { return code->file; }

namespace {

constexpr std::size_t kBuckets = 1 << 13, kCodeBuckets = 1 << 11, kPlacesMax = 1 << 18;
constexpr std::size_t kCodeBytesMax = std::size_t{64} << 20;  // of all copied names and tables
constexpr std::size_t kNameBytesMax = 4096;
constexpr int kLooksMax = 4096;  // frames that are no Python frames, in a row, prove that this is no stack

constinit std::atomic<Place*> buckets[kBuckets] = {};
constinit Lock places_lock;  // guards insertion and what follows
constinit Code* codes[kCodeBuckets] = {};
constinit std::size_t places_count = 0, code_bytes = 0;
constinit std::atomic<std::uint64_t> dropped{0};
constinit std::atomic<bool> is_off{false};

template <class T>
T read(const char* object, std::size_t offset) {
  T value;
  std::memcpy(&value, object + offset, sizeof value);
  return value;
}
const char* read_pointer(const char* object, std::size_t offset) { return read<const char*>(object, offset); }

// --- Strings and tables. Both have their length at 16.
constexpr std::size_t kType = 8, kLength = 16, kStringHash = 24, kStringState = 32, kBytesData = 32;

struct Text {
  const char* data;
  std::size_t length;  // of characters
  unsigned width;      // bytes of one
  std::size_t bytes() const { return length * width; }
};

Text text_of(const Layout& layout, const char* string) {
  const auto state = read<std::uint32_t>(string, kStringState);
  const unsigned width = state >> 2 & 7;
  const bool is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
  if (!is_compact || (width != 1 && width != 2 && width != 4)) return {"?", 1, 1};
  return {string + (is_ascii ? layout.string_data_ascii : layout.string_data), read<std::size_t>(string, kLength),
          width};
}

void add_utf8(String& to, std::uint32_t character) {
  const auto add = [&to](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | character >> 6);
  } else {
    if (character < 0x10000) {
      add(0xe0 | character >> 12);
    } else {
      add(0xf0 | character >> 18);
      add(0x80 | (character >> 12 & 63));
    }
    add(0x80 | (character >> 6 & 63));
  }
  add(0x80 | (character & 63));
}

String utf8_of(const Text& text) {
  String copy;
  for (std::size_t i = 0; i < text.length && copy.size() < kNameBytesMax; ++i) {
    std::uint32_t character = 0;
    std::memcpy(&character, text.data + i * text.width, text.width);
    add_utf8(copy, character);
  }
  return copy;
}

// Of characters of one byte the copy is what it was made from, or longer.
bool is_still(const String& copy, const Text& text) {
  if (text.width == 1 && copy.size() == text.length) return std::memcmp(copy.data(), text.data, text.length) == 0;
  return copy == utf8_of(text);
}

std::uint64_t hash_of(const char* object, std::uintptr_t of_object) {
  return (reinterpret_cast<std::uintptr_t>(object) + of_object * 31) * 0x9E3779B97F4A7C15;
}

// --- Code objects
bool is_same(const Code& code, const Layout& layout, const char* object) {
  if (code.object != object || code.name_object != read_pointer(object, layout.code_name) ||
      code.file_object != read_pointer(object, layout.code_file) ||
      code.table_object != read_pointer(object, layout.code_table) ||
      code.first_line != read<int>(object, layout.code_first_line))
    return false;
  if (code.version) return code.version == read<unsigned>(object, layout.code_version);
  // All of these may have been freed, and made again at the same places: what they say has to be the same.
  const char* const table = static_cast<const char*>(code.table_object);
  return read<std::size_t>(table, kLength) == code.table.size() &&
         std::memcmp(table + kBytesData, code.table.data(), code.table.size()) == 0 &&
         is_still(code.file, text_of(layout, static_cast<const char*>(code.file_object))) &&
         is_still(code.function, text_of(layout, static_cast<const char*>(code.name_object)));
}

const Code* note_code(const Layout& layout, const char* object) {
  Code*& bucket = codes[hash_of(object, 0) >> (64 - 11)];
  for (const Code* code = bucket; code; code = code->next)
    if (is_same(*code, layout, object)) return code;
  const char* const table = read_pointer(object, layout.code_table);
  const std::size_t table_bytes = read<std::size_t>(table, kLength);
  if (code_bytes + table_bytes > kCodeBytesMax) return nullptr;
  auto* const code = new (internal_allocate(sizeof(Code))) Code{};
  code->next = bucket;
  code->object = object;
  code->name_object = read_pointer(object, layout.code_name);
  code->file_object = read_pointer(object, layout.code_file);
  code->table_object = table;
  code->first_line = read<int>(object, layout.code_first_line);
  code->version = layout.code_version ? read<unsigned>(object, layout.code_version) : 0;
  code->function = utf8_of(text_of(layout, static_cast<const char*>(code->name_object)));
  code->file = utf8_of(text_of(layout, static_cast<const char*>(code->file_object)));
  if (!code->version) code->table.assign(table + kBytesData, table_bytes);
  code_bytes += sizeof(Code) + code->function.size() + code->file.size() + code->table.size();
  bucket = code;
  return code;
}

// --- Places
struct Instruction {
  const Layout* layout;
  const char* code;
  std::uintptr_t at;

  std::size_t offset() const {
    if (!layout->instruction_is_index()) return at - reinterpret_cast<std::uintptr_t>(code + layout->code_start);
    const auto index = static_cast<std::int32_t>(at);
    if (index < 0) return 0;
    return static_cast<std::size_t>(index) * (layout->lines == LineTable::pairs_of_ranges ? 2 : 1);
  }
  std::atomic<Place*>& bucket() const { return buckets[hash_of(code, at) >> (64 - 13)]; }
};
static_assert(kBuckets == 1 << 13 && kCodeBuckets == 1 << 11);

Place* find(const Instruction& instruction) {
  Place* place = instruction.bucket().load(std::memory_order_acquire);
  while (place &&
         !(place->instruction == instruction.at && is_same(*place->code, *instruction.layout, instruction.code)))
    place = place->next;
  return place;
}

[[gnu::noinline, gnu::cold]] Place* insert(const Instruction& instruction) {
  const LockedUnlessForking hold(places_lock);
  if (!hold) return nullptr;
  if (Place* const other = find(instruction)) return other;
  const Code* const code = places_count < kPlacesMax ? note_code(*instruction.layout, instruction.code) : nullptr;
  if (!code) {
    dropped.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const char* const table = static_cast<const char*>(code->table_object);
  const CodeLines lines{instruction.layout->lines, reinterpret_cast<const std::uint8_t*>(table + kBytesData),
                        read<std::size_t>(table, kLength), code->first_line};
  std::atomic<Place*>& bucket = instruction.bucket();
  auto* const place = new (internal_allocate(sizeof(Place)))
      Place{bucket.load(std::memory_order_relaxed), code, instruction.at, line_at(lines, instruction.offset())};
  bucket.store(place, std::memory_order_release);
  ++places_count;
  return place;
}

const Place* place_of(const Instruction& instruction) {
  if (const Place* const known = find(instruction)) [[likely]]
    return known;
  return insert(instruction);
}

// --- Frames
// Of this thread. Up to 3.11, a sub-interpreter's is the current one, but only with the GIL; without it only a process
// of one interpreter can tell.
const char* state_of_thread(const Interpreter& interpreter) {
  const char* const own = interpreter.own_state();
  const Layout& layout = *interpreter.layout;
  const auto is_of_this_thread = [&layout](const char* state) {
    return read<pthread_t>(state, layout.state_thread) == pthread_self();
  };
  if (!own || !is_of_this_thread(own)) return nullptr;
  if (!interpreter.current_state) return own;
  const char* const current = interpreter.current_state();
  if (current == own || !interpreter.next(interpreter.first())) return own;
  return current && is_of_this_thread(current) ? current : nullptr;
}

const char* innermost_frame(const Interpreter& interpreter) {
  const Layout& layout = *interpreter.layout;
  // Then states of threads are freed that other threads still have.
  if (interpreter.is_finalizing()) return nullptr;
  const char* const state = state_of_thread(interpreter);
  if (!state) return nullptr;
  const char* const frame = read_pointer(state, layout.state_frame);
  return layout.frame_in_holder < 0 ? frame : read_pointer(frame, static_cast<std::size_t>(layout.frame_in_holder));
}

// Null: the frame is none that runs Python code, or has not begun to.
const char* code_of(const Interpreter& interpreter, const char* frame) {
  constexpr std::uintptr_t kTags = 3;
  const Layout& layout = *interpreter.layout;
  const auto tagged = read<std::uintptr_t>(frame, layout.frame_code);
  const char* const code = reinterpret_cast<const char*>(tagged & ~kTags);
  if (!code || read_pointer(code, kType) != interpreter.code_type) return nullptr;
  if (layout.instruction_is_index() || read<std::uint8_t>(frame, layout.frame_owner) == layout.owner_generator)
    return code;
  const char* const first = code + layout.code_start + 2 * read<int>(code, layout.code_first_traceable);
  return read_pointer(frame, layout.frame_instruction) < first ? nullptr : code;
}

std::uintptr_t instruction_of(const Layout& layout, const char* frame) {
  if (layout.instruction_is_index()) return read<std::uint32_t>(frame, layout.frame_instruction);
  return read<std::uintptr_t>(frame, layout.frame_instruction);
}

int read_from(const Interpreter& interpreter, Frame* frames, int frames_max) {
  const Layout& layout = *interpreter.layout;
  int count = 0;
  const char* frame = innermost_frame(interpreter);
  for (int looks = 0; frame && count < frames_max && looks < kLooksMax; ++looks) {
    if (layout.run_end == RunEnd::callers_frame &&
        read<std::uint8_t>(frame, layout.frame_owner) >= layout.owner_caller) {
      // Its run may be empty, and it may end the frame before it.
      if (count && !frames[count - 1].ends_run())
        frames[count - 1] = Frame(frames[count - 1].place(), true);
      else
        frames[count++] = Frame(nullptr, true);
    } else {
      const char* const code = code_of(interpreter, frame);
      const Place* const place = code ? place_of({&layout, code, instruction_of(layout, frame)}) : nullptr;
      const bool ends_run = layout.run_end == RunEnd::every_frame || (layout.run_end == RunEnd::flagged_frame &&
                                                                      read<std::uint8_t>(frame, layout.frame_is_entry));
      if (place || ends_run) frames[count++] = Frame(place, ends_run);
    }
    frame = read_pointer(frame, layout.frame_previous);
  }
  return count;
}

// An object that was unloaded has no frame on this stack; another one may lie there by now.
bool is_still_there(const Interpreter& interpreter) {
  dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(interpreter.eval_start), &found) == 0 &&
         found.dlfo_link_map == interpreter.module;
}

}  // namespace

int read_frames(void* const* addresses, int count, bool cut_off, Frame* frames, int frames_max) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < known && !is_off.load(std::memory_order_relaxed); ++i) {
    const Interpreter& interpreter = interpreters[i];
    if (!interpreter.layout) continue;
    const auto lies_in_it = [&interpreter](const void* address) {
      return interpreter.holds(reinterpret_cast<std::uintptr_t>(address));
    };
    if (!cut_off && !std::any_of(addresses, addresses + count, lies_in_it)) continue;
    if (!is_still_there(interpreter)) continue;
    if (const int read = read_from(interpreter, frames, frames_max)) return read;
  }
  return 0;
}

bool is_evaluation(std::uintptr_t address) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  return std::any_of(interpreters, interpreters + known, [address](const Interpreter& interpreter) {
    return interpreter.layout && interpreter.evaluates(address);
  });
}

bool is_interpreter(std::uintptr_t address) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  return std::any_of(interpreters, interpreters + known,
                     [address](const Interpreter& interpreter) { return interpreter.holds(address); });
}

void switch_off() { is_off.store(true, std::memory_order_relaxed); }

std::uint64_t frames_dropped() { return dropped.load(std::memory_order_relaxed); }

void frames_before_fork() { places_lock.lock_for_fork(); }
void frames_after_fork() { places_lock.unlock_after_fork(); }

}  // namespace cistern::python
