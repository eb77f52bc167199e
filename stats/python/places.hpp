// Places of Python code: an instruction of a function, with its name, file and line. These are copied when they are
// seen first: code objects go away, and others take their addresses. Found by the addresses of code and instruction, in
// a hash table of immutable entries that is read without a lock and never shrinks; an entry counts only if it is still
// the same code. The part that every frame of every walk needs is in line here.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool/base/internal_memory.hpp"
#include "stats/python/layout.hpp"

namespace cistern::python {

template <class T>
T read(const char* object, std::size_t offset) {
  T value;
  std::memcpy(&value, object + offset, sizeof value);
  return value;
}
inline const char* read_pointer(const char* object, std::size_t offset) { return read<const char*>(object, offset); }

// Offsets in every object, in strings and in tables of bytes.
inline constexpr std::size_t kType = 8, kLength = 16, kHash = 24, kStringState = 32;
inline constexpr auto kNoHash = static_cast<std::uint64_t>(-1);
inline constexpr std::uint32_t kForm =
    0x7c;  // bits of a string's state: bytes of a character, whether compact, whether ASCII

// A string or a table of bytes that a code object has, and what it said: its bytes lie behind the Code.
struct Part {
  const char* object;
  std::uint64_t length;  // of characters
  std::uint64_t hash;    // a string's, once Python has asked for it
  std::uint32_t form;    // how they are kept; 0: a table
  std::uint32_t offset;  // where, in the object
  std::uint64_t bytes;
};

// The shown parts of a frame. Each is there once, and is never freed, because call sites refer to it. The same holds
// for its texts.
struct Text {
  Text* next;
  String text;
};
struct Line {
  Line* next;
  const Text *function, *file;
  unsigned number;  // 0: unknown
};

// A code object as it was when it was seen. Another object at the same address differs in one of these.
struct KnownInstruction;
struct Code {
  Code* next;               // in its bucket, or retired
  KnownInstruction* first;  // of its instructions
  const char* object;
  int first_line;
  unsigned version;  // the object's own number, where it has one: then the parts' bytes are neither kept nor compared
  Part name, file, table;
  std::size_t size;  // with what lies behind it

  const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
};

// An instruction of a code object.
struct KnownInstruction {
  std::atomic<KnownInstruction*> next;
  std::uintptr_t instruction;  // its address; in old versions its number
  const Code* code;
  const Line* line;
  KnownInstruction* next_of_code;
};

struct Instruction {
  const char* code;
  std::uintptr_t at;
};

inline constexpr unsigned kBucketBits = 15;
inline constinit std::atomic<KnownInstruction*> buckets[1 << kBucketBits] = {};

inline std::uint64_t hash_of(const char* object, std::uintptr_t of_object) {
  return (reinterpret_cast<std::uintptr_t>(object) + of_object * 31) * 0x9E3779B97F4A7C15;
}
inline std::atomic<KnownInstruction*>& bucket_of(const Instruction& instruction) {
  return buckets[hash_of(instruction.code, instruction.at) >> (64 - kBucketBits)];
}

// In line: what is compared has some ten bytes. The last words overlap those before.
template <class Word>
[[gnu::always_inline]] inline bool equal_words(const char* one, const char* other, std::size_t bytes) {
  const auto difference_at = [=](std::size_t at) { return read<Word>(one, at) ^ read<Word>(other, at); };
  Word difference = difference_at(bytes - sizeof(Word));
  for (std::size_t at = 0; at + sizeof(Word) < bytes; at += sizeof(Word)) difference |= difference_at(at);
  if constexpr (sizeof(Word) == sizeof(std::uint64_t))
    return difference == 0;
  else
    return (difference[0] | difference[1]) == 0;
}

[[gnu::always_inline]] inline bool equal(const char* one, const char* other, std::size_t bytes) {
  using Two = std::uint64_t __attribute__((vector_size(16)));
  if (bytes >= sizeof(Two)) return equal_words<Two>(one, other, bytes);
  return bytes >= 8 ? equal_words<std::uint64_t>(one, other, bytes) : std::memcmp(one, other, bytes) == 0;
}

// Names have their hash, for they are interned: 64 bits that no two texts share.
[[gnu::always_inline]] inline bool is_still(const Part& part, const char* bytes) {
  if (part.hash != kNoHash && part.hash == read<std::uint64_t>(part.object, kHash)) return true;
  return read<std::uint64_t>(part.object, kLength) == part.length &&
         (!part.form || (read<std::uint32_t>(part.object, kStringState) & kForm) == part.form) &&
         equal(part.object + part.offset, bytes, part.bytes);
}

[[gnu::always_inline]] inline bool is_same(const Layout& layout, const Code& code, const char* object) {
  if (code.object != object || code.name.object != read_pointer(object, layout.code_name) ||
      code.file.object != read_pointer(object, layout.code_file) ||
      code.table.object != read_pointer(object, layout.code_table) ||
      code.first_line != read<int>(object, layout.code_first_line))
    return false;
  if (layout.code_version && code.version) return code.version == read<unsigned>(object, layout.code_version);
  // All of these may have been freed, and made again at the same places: what they say has to be the same.
  const char* const bytes = code.bytes();
  return is_still(code.name, bytes) && is_still(code.file, bytes + code.name.bytes) &&
         is_still(code.table, bytes + code.name.bytes + code.file.bytes);
}

[[gnu::always_inline]] inline const Line* find_line(const Layout& layout, const Instruction& instruction) {
  const KnownInstruction* place = bucket_of(instruction).load(std::memory_order_acquire);
  while (place && !(place->instruction == instruction.at && is_same(layout, *place->code, instruction.code)))
    place = place->next.load(std::memory_order_acquire);
  return place ? place->line : nullptr;
}

// Adds a line that was not there. Takes a lock of ours. Null: a thread forks.
const Line* insert_line(const Layout& layout, const Instruction& instruction);

// How many threads look at Python's frames or at places.
inline constinit std::atomic<unsigned> walkers{0};

void places_before_fork();
void places_after_fork();

}  // namespace cistern::python
