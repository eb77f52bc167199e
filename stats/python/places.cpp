// See places.hpp: what is done once for each place.
#include "stats/python/places.hpp"

#include <new>

#include "pool/base/lock.hpp"
#include "stats/python/lines.hpp"

namespace cistern::python {
namespace {

constexpr unsigned kCodeBits = 11;
constexpr std::size_t kPlacesMax = 1 << 18, kNameBytesMax = 4096;
constexpr std::size_t kCodeBytesMax = std::size_t{64} << 20;  // of all copied names and tables
constexpr std::size_t kBytesData = 32;

constinit Lock places_lock;  // guards insertion and what follows
constinit Code* codes[1 << kCodeBits] = {};
constinit std::size_t places_count = 0, code_bytes = 0;

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

const Code* note_code(const Layout& layout, const char* object) {
  Code*& bucket = codes[hash_of(object, 0) >> (64 - kCodeBits)];
  for (const Code* code = bucket; code; code = code->next)
    if (is_same(layout, *code, object)) return code;
  const Part name = string_part(layout, read_pointer(object, layout.code_name)),
             file = string_part(layout, read_pointer(object, layout.code_file)),
             table = table_part(read_pointer(object, layout.code_table));
  const std::size_t bytes = sizeof(Code) + name.bytes + file.bytes + table.bytes;
  if (code_bytes + bytes > kCodeBytesMax) return nullptr;
  auto* const code = new (internal_allocate(bytes)) Code{};
  *code = {bucket,        object,       read<int>(object, layout.code_first_line), 0, name, file, table,
           utf8_of(name), utf8_of(file)};
  if (layout.code_version) code->version = read<unsigned>(object, layout.code_version);
  char* copy = reinterpret_cast<char*>(code + 1);
  for (const Part& part : {name, file, table}) {
    std::memcpy(copy, part.object + part.offset, part.bytes);
    copy += part.bytes;
  }
  code_bytes += bytes + code->function_text.size() + code->file_text.size();
  bucket = code;
  return code;
}

// In bytes, from the code's first instruction.
std::size_t offset_of(const Layout& layout, const Instruction& instruction) {
  if (!layout.instruction_is_index())
    return instruction.at - reinterpret_cast<std::uintptr_t>(instruction.code + layout.code_start);
  const auto index = static_cast<std::int32_t>(instruction.at);
  if (index < 0) return 0;
  return static_cast<std::size_t>(index) * (layout.lines == LineTable::pairs_of_ranges ? 2 : 1);
}

}  // namespace

[[gnu::cold]] Place* insert_place(const Layout& layout, const Instruction& instruction) {
  const LockedUnlessForking hold(places_lock);
  if (!hold) return nullptr;
  if (Place* const other = find_place(layout, instruction)) return other;
  const Code* const code = places_count < kPlacesMax ? note_code(layout, instruction.code) : nullptr;
  if (!code) return nullptr;
  const CodeLines lines{layout.lines, reinterpret_cast<const std::uint8_t*>(code->table.object + kBytesData),
                        code->table.bytes, code->first_line};
  std::atomic<Place*>& bucket = bucket_of(instruction);
  auto* const place = new (internal_allocate(sizeof(Place))) Place{
      bucket.load(std::memory_order_relaxed), code, instruction.at, line_at(lines, offset_of(layout, instruction))};
  bucket.store(place, std::memory_order_release);
  ++places_count;
  return place;
}

void places_before_fork() { places_lock.lock_for_fork(); }
void places_after_fork() { places_lock.unlock_after_fork(); }

}  // namespace cistern::python
