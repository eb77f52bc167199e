// See places.hpp: what is done once for each place.
#include "stats/python/places.hpp"

#include <new>
#include <utility>

#include "pool/base/lock.hpp"
#include "stats/python/lines.hpp"

namespace cistern::python {
namespace {

constexpr unsigned kLineBits = 14, kTextBits = 11, kCodeBits = 12;
constexpr std::size_t kNameBytesMax = 4096;
constexpr std::size_t kPlacesBytesMax = std::size_t{64} << 20, kLinesBytesMax = std::size_t{32} << 20;
constexpr std::size_t kBytesData = 32;

constinit Lock places_lock;  // guards all writing, and what follows
constinit Code *codes[1 << kCodeBits] = {}, *retired = nullptr;
constinit Line* lines[1 << kLineBits] = {};
constinit Text* texts[1 << kTextBits] = {};
constinit Line* line_too_many = nullptr;
constinit std::size_t places_bytes = 0, lines_bytes = 0;

Part string_part(const Layout& layout, const char* string) {
  const std::uint32_t form = read<std::uint32_t>(string, kStringState) & kForm;
  const unsigned width = form >> 2 & 7;
  const bool is_compact = form >> 5 & 1, is_ascii = form >> 6 & 1;
  Part part{string,
            read<std::uint64_t>(string, kLength),
            read<std::uint64_t>(string, kHash),
            form,
            is_ascii ? layout.string_data_ascii : layout.string_data,
            0};
  if (is_compact && (width == 1 || width == 2 || width == 4)) part.bytes = part.length * width;
  return part;
}

Part table_part(const char* table) {
  const auto bytes = read<std::uint64_t>(table, kLength);
  return {table, bytes, kNoHash, 0, kBytesData, bytes};
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

String utf8_of(const Part& text) {
  String copy;
  const std::size_t width = text.form >> 2 & 7;
  for (std::size_t at = 0; at < text.bytes && copy.size() < kNameBytesMax; at += width) {
    std::uint32_t character = 0;
    std::memcpy(&character, text.object + text.offset + at, width);
    add_utf8(copy, character);
  }
  return copy.empty() ? "?" : copy;
}

// --- Lines
const Text* intern(String&& text) {
  std::uint64_t hash = 0;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  Text*& bucket = texts[hash * 0x9E3779B97F4A7C15 >> (64 - kTextBits)];
  for (const Text* known = bucket; known; known = known->next)
    if (known->text == text) return known;
  lines_bytes += sizeof(Text) + text.capacity();
  return bucket = new (internal_allocate(sizeof(Text))) Text{bucket, std::move(text)};
}

// Code that is generated, with other names every time, does not end.
const Line* line_of_too_many() {
  if (!line_too_many)
    line_too_many = new (internal_allocate(sizeof(Line)))
        Line{nullptr, intern("?"), intern("(too much Python code to keep its names)"), 0};
  return line_too_many;
}

const Line* line_of(const Code& code, unsigned number) {
  if (lines_bytes > kLinesBytesMax) return line_of_too_many();
  const Text *const function = intern(utf8_of(code.name)), *const file = intern(utf8_of(code.file));
  const std::uintptr_t of_texts =
      reinterpret_cast<std::uintptr_t>(function) + reinterpret_cast<std::uintptr_t>(file) * 3;
  Line*& bucket = lines[(of_texts + number) * 0x9E3779B97F4A7C15 >> (64 - kLineBits)];
  for (const Line* line = bucket; line; line = line->next)
    if (line->number == number && line->function == function && line->file == file) return line;
  lines_bytes += sizeof(Line);
  return bucket = new (internal_allocate(sizeof(Line))) Line{bucket, function, file, number};
}

// --- Code
// Who stands on one of its places goes on from there.
void unlink_places(const Code& code) {
  for (KnownInstruction* place = code.first; place; place = place->next_of_code) {
    std::atomic<KnownInstruction*>* link = &bucket_of({code.object, place->instruction});
    while (link->load(std::memory_order_relaxed) != place) link = &link->load(std::memory_order_relaxed)->next;
    link->store(place->next.load(std::memory_order_relaxed), std::memory_order_release);
  }
}

// This thread walks, but has no place in its hands.
void free_retired() {
  if (!retired) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (walkers.load(std::memory_order_seq_cst) != 1) return;
  while (Code* const code = retired) {
    retired = code->next;
    while (KnownInstruction* const place = code->first) {
      code->first = place->next_of_code;
      places_bytes -= sizeof(KnownInstruction);
      internal_deallocate(place, sizeof(KnownInstruction));
    }
    places_bytes -= code->size;
    internal_deallocate(code, code->size);
  }
}

void retire(Code** link) {
  Code* const code = *link;
  *link = code->next;
  unlink_places(*code);
  code->next = retired;
  retired = code;
}

// The facts about code can be found out again.
void retire_all() {
  for (Code*& bucket : codes)
    while (bucket) retire(&bucket);
  free_retired();
}

Code* make_code(const Layout& layout, const char* object) {
  Code seen{};
  seen.object = object;
  seen.first_line = read<int>(object, layout.code_first_line);
  seen.version = layout.code_version ? read<unsigned>(object, layout.code_version) : 0;
  seen.name = string_part(layout, read_pointer(object, layout.code_name));
  seen.file = string_part(layout, read_pointer(object, layout.code_file));
  seen.table = table_part(read_pointer(object, layout.code_table));
  seen.size = sizeof(Code) + (seen.version ? 0 : seen.name.bytes + seen.file.bytes + seen.table.bytes);
  Code* const code = new (internal_allocate(seen.size)) Code(seen);
  char* copy = reinterpret_cast<char*>(code + 1);
  for (const Part& part : {seen.name, seen.file, seen.table}) {
    if (seen.version) break;
    std::memcpy(copy, part.object + part.offset, part.bytes);
    copy += part.bytes;
  }
  places_bytes += seen.size;
  return code;
}

// The facts about the object. Those of another object that had its address are dropped.
Code* code_of(const Layout& layout, const char* object) {
  Code** link = &codes[hash_of(object, 0) >> (64 - kCodeBits)];
  Code** const bucket = link;
  while (*link && (*link)->object != object) link = &(*link)->next;
  if (Code* const known = *link) {
    if (is_same(layout, *known, object)) return known;
    retire(link);
  }
  free_retired();
  Code* const code = make_code(layout, object);
  code->next = *bucket;
  return *bucket = code;
}

unsigned number_of(const Layout& layout, const Instruction& instruction, const Code& code) {
  const auto* const table = reinterpret_cast<const std::uint8_t*>(code.table.object + kBytesData);
  const CodeLines of_code{layout.lines, table, code.table.bytes, code.first_line};
  if (!layout.instruction_is_index())
    return line_at(of_code, instruction.at - reinterpret_cast<std::uintptr_t>(instruction.code + layout.code_start));
  const auto index = static_cast<std::int32_t>(instruction.at);
  // Not begun: the function's first line, not that of its first instruction.
  if (index < 0) return static_cast<unsigned>(of_code.first_line);
  return line_at(of_code, static_cast<std::size_t>(index) * (layout.lines == LineTable::pairs_of_ranges ? 2 : 1));
}

}  // namespace

[[gnu::cold]] const Line* insert_line(const Layout& layout, const Instruction& instruction) {
  const LockedUnlessForking hold(places_lock);
  if (!hold) return nullptr;
  if (const Line* const other = find_line(layout, instruction)) return other;
  if (places_bytes > kPlacesBytesMax) retire_all();
  if (places_bytes > 2 * kPlacesBytesMax) return line_of_too_many();  // others walk all the time
  Code* const code = code_of(layout, instruction.code);
  const Line* const line = line_of(*code, number_of(layout, instruction, *code));
  std::atomic<KnownInstruction*>& bucket = bucket_of(instruction);
  auto* const place = new (internal_allocate(sizeof(KnownInstruction)))
      KnownInstruction{bucket.load(std::memory_order_relaxed), instruction.at, code, line, code->first};
  code->first = place;
  places_bytes += sizeof(KnownInstruction);
  bucket.store(place, std::memory_order_release);
  return line;
}

void places_before_fork() { places_lock.lock_for_fork(); }
void places_after_fork() { places_lock.unlock_after_fork(); }

}  // namespace cistern::python
