// See places.hpp: what is done once for each place.
#include "stats/python/places.hpp"

#include <new>
#include <utility>

#include "pool/base/lock.hpp"
#include "stats/python/lines.hpp"

namespace cistern::python {
namespace {

constexpr unsigned kLineBits = 11;
constexpr std::size_t kNameBytesMax = 4096;
constexpr std::size_t kPlacesBytesMax = std::size_t{32} << 20, kLinesBytesMax = std::size_t{32} << 20;
constexpr std::size_t kBytesData = 32;

constinit Lock places_lock;  // guards all writing, and what follows
constinit Place* retired = nullptr;
constinit Line* lines[1 << kLineBits] = {};
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
std::uint64_t hash_of(const String& function, const String& file, unsigned number) {
  std::uint64_t hash = number;
  for (const String* text : {&function, &file})
    for (const char byte : *text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  return hash * 0x9E3779B97F4A7C15;
}

// Code that is generated, with other names every time, does not end.
const Line* line_of_too_many() {
  if (!line_too_many)
    line_too_many = new (internal_allocate(sizeof(Line))) Line{nullptr, "?", "(more Python code than is kept)", 0};
  return line_too_many;
}

const Line* intern(String&& function, String&& file, unsigned number) {
  Line*& bucket = lines[hash_of(function, file, number) >> (64 - kLineBits)];
  for (const Line* line = bucket; line; line = line->next)
    if (line->number == number && line->function == function && line->file == file) return line;
  if (lines_bytes > kLinesBytesMax) return line_of_too_many();
  lines_bytes += sizeof(Line) + function.capacity() + file.capacity();
  bucket = new (internal_allocate(sizeof(Line))) Line{bucket, std::move(function), std::move(file), number};
  return bucket;
}

// --- Places
// Those that the code object's predecessors left in the bucket.
void retire_others(const Instruction& instruction) {
  std::atomic<Place*>* link = &bucket_of(instruction);
  while (Place* const place = link->load(std::memory_order_relaxed)) {
    if (place->object != instruction.code || place->instruction != instruction.at) {
      link = &place->next;
      continue;
    }
    link->store(place->next.load(std::memory_order_relaxed), std::memory_order_release);
    // Who stands on it goes on from there.
    place->next_retired = retired;
    retired = place;
  }
}

// This thread walks, but has no place in its hands.
void free_retired() {
  if (!retired) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (walkers.load(std::memory_order_seq_cst) != 1) return;
  while (Place* const place = retired) {
    retired = place->next_retired;
    places_bytes -= place->size;
    internal_deallocate(place, place->size);
  }
}

unsigned line_of(const Layout& layout, const Instruction& instruction, const CodeLines& of_code) {
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
  const char* const object = instruction.code;
  const Part name = string_part(layout, read_pointer(object, layout.code_name)),
             file = string_part(layout, read_pointer(object, layout.code_file)),
             table = table_part(read_pointer(object, layout.code_table));
  const CodeLines of_code{layout.lines, reinterpret_cast<const std::uint8_t*>(table.object + kBytesData), table.bytes,
                          read<int>(object, layout.code_first_line)};
  const Line* const line = intern(utf8_of(name), utf8_of(file), line_of(layout, instruction, of_code));
  retire_others(instruction);
  free_retired();
  const unsigned version = layout.code_version ? read<unsigned>(object, layout.code_version) : 0;
  const std::size_t bytes = sizeof(Place) + (version ? 0 : name.bytes + file.bytes + table.bytes);
  if (places_bytes + bytes > kPlacesBytesMax) return line;
  std::atomic<Place*>& bucket = bucket_of(instruction);
  auto* const place = new (internal_allocate(bytes)) Place{bucket.load(std::memory_order_relaxed),
                                                           nullptr,
                                                           object,
                                                           instruction.at,
                                                           of_code.first_line,
                                                           version,
                                                           name,
                                                           file,
                                                           table,
                                                           line,
                                                           bytes};
  char* copy = reinterpret_cast<char*>(place + 1);
  for (const Part& part : {name, file, table}) {
    if (version) break;
    std::memcpy(copy, part.object + part.offset, part.bytes);
    copy += part.bytes;
  }
  places_bytes += bytes;
  bucket.store(place, std::memory_order_release);
  return line;
}

void places_before_fork() { places_lock.lock_for_fork(); }
void places_after_fork() { places_lock.unlock_after_fork(); }

}  // namespace cistern::python
