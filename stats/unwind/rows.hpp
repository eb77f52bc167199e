// Rows: what a module's unwind tables (DWARF call frame information) say about one return address, in one word. From
// that address and the registers there a row leads to the caller's. Nothing is remembered here: see cache.hpp.
#pragma once
#include <cstdint>

namespace cistern::unwind {

// The few shapes that compilers make at calls. The caller's frame begins at the canonical frame address (CFA), where
// rsp will point once the call has returned. rsp and rbp stand for sp and x29 of aarch64.
enum class Shape : std::uint8_t {
  none,       // unknown or of another shape; no bits set, so that tables of such rows take no room in the file
  from_rsp,   // CFA = rsp + cfa_offset
  from_rbp,   // CFA = rbp + cfa_offset
  at_rbp,     // CFA = *(rbp + cfa_offset): the function aligned its stack
  outermost,  // nobody called
  no_entry,   // the tables have no entry for this code: no unwinder that reads them goes on
};

// Lowest bits first: where the CFA is, and where the caller's registers were saved; 7 bits for the shape; one for code
// of ours; 16 for the number that cache.cpp gave a module that may be unloaded, 0 if it stays.
struct Row {
  std::uint64_t bits = 0;

#if defined(__x86_64__)
  // The return address lies right below the CFA. `rbp_words`: where rbp was saved, in words from the CFA (with at_rbp
  // from rbp), 0 if it is rbp still.
  static Row make(Shape shape, std::int64_t cfa_offset = 0, std::int64_t rbp_words = 0) {
    return {std::uint64_t{static_cast<std::uint32_t>(cfa_offset)} |
            std::uint64_t{static_cast<std::uint8_t>(rbp_words)} << 32 |
            std::uint64_t{static_cast<std::uint8_t>(shape)} << 40};
  }
  std::uintptr_t cfa_offset() const {
    return static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int32_t>(bits)});
  }
  std::uintptr_t rbp_offset() const {
    return static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int8_t>(bits >> 32)} * 8);
  }
#else
  // Both are saved near the register that the CFA is told from, below the function's variables: in words from that; for
  // x29 it is one more, 0 if it is x29 still.
  static constexpr std::int64_t kCfaWordsMax = (1 << 24) - 1, kSavedWordsMax = 254;
  static Row make(Shape shape, std::int64_t cfa_words = 0, std::int64_t rbp_words = 0, std::int64_t return_words = 0) {
    return {static_cast<std::uint64_t>(cfa_words) | static_cast<std::uint64_t>(return_words) << 24 |
            static_cast<std::uint64_t>(rbp_words) << 32 | std::uint64_t{static_cast<std::uint8_t>(shape)} << 40};
  }
  std::uintptr_t cfa_offset() const { return (bits & 0xffffff) * 8; }
  std::uintptr_t return_offset() const { return (bits >> 24 & 0xff) * 8; }
  std::uintptr_t rbp_offset() const { return (bits >> 32 & 0xff) * 8 - 8; }
#endif
  Row of_module(std::uint64_t number) const { return {bits | number << 48}; }
  Row of_own() const { return {bits | kOwn}; }
  bool rbp_kept() const { return (bits >> 32 & 0xff) == 0; }
  Shape shape() const { return static_cast<Shape>(bits >> 40 & 0x7f); }
  bool is_own() const { return bits & kOwn; }
  unsigned module() const { return static_cast<unsigned>(bits >> 48); }

 private:
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 47;
};

// The row of the code at `address`, from the tables (PT_GNU_EH_FRAME) of the module that it lies in; null: it has none.
Row read_row(const void* tables, std::uintptr_t address);

}  // namespace cistern::unwind
