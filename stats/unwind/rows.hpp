// Rows: what a module's unwind tables (DWARF call frame information) say about one return address, in one word. From
// that address and the registers there a row leads to the caller's. Nothing is remembered here: see cache.hpp.
#pragma once
#include <cstdint>

namespace cistern::unwind {

// The few shapes that compilers make at calls. The caller's frame begins at the canonical frame address (CFA): right
// below lies its return address, and there rsp will point once the call has returned.
enum class Shape : std::uint8_t {
  none,       // unknown or of another shape; no bits set, so that tables of such rows take no room in the file
  from_rsp,   // CFA = rsp + cfa_offset
  from_rbp,   // CFA = rbp + cfa_offset
  at_rbp,     // CFA = *(rbp + cfa_offset): the function aligned its stack
  outermost,  // nobody called
};

// Lowest bits first: where the CFA is; where the caller's rbp was saved, in words from the CFA (with at_rbp from rbp),
// 0 if it is rbp still; the shape; the number that cache.cpp gave a module that may be unloaded, 0 if it stays.
struct Row {
  std::uint64_t bits = 0;

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
  // Of a module that stays, and with the CFA at a distance from a register or unknown.
  bool is_plain() const { return bits >> 40 <= static_cast<unsigned>(Shape::from_rbp); }
};

// The row of the code at `address`, from the tables (PT_GNU_EH_FRAME) of the module that it lies in.
Row read_row(const void* tables, std::uintptr_t address);

}  // namespace cistern::unwind
