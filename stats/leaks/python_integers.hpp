// Integers of CPython, as they lie in its memory: programs keep addresses of device memory and handles in them, and
// their digits of 30 bits do not look like a pointer.
#pragma once
#include <cstdint>
#include <cstring>

namespace cistern::leaks {

struct PythonIntegers {
  std::uintptr_t type = 0;  // address of PyLong_Type; 0: there is no Python
  bool has_tag = false;     // since 3.12 the number of digits lies above three bits of others
  // Those of freed objects are none: by the count in the word before the type, which builds without the GIL have not.
  bool only_live = false;

  // The value of the object whose type is at `at`, in memory up to `end`. 0: it does not have one or two digits, as
  // addresses have, or it was freed.
  std::uintptr_t value_at(std::uintptr_t at, std::uintptr_t first, std::uintptr_t end) const {
    constexpr std::uintptr_t kWord = sizeof(std::uintptr_t), kDigitBits = 30;
    if (end - at < 3 * kWord || (only_live && at - first < kWord)) return 0;
    const auto word_at = [](std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); };
    // A freed object's first word is the list of free ones, or null. Flags of newer versions lie above its 48 bits.
    const std::uintptr_t references = only_live ? word_at(at - kWord) : 1;
    if (!(references & 0xffff'ffff) || (references >> 32 & 0xffff)) return 0;
    const std::uintptr_t size = word_at(at + kWord), sign_and_flags = has_tag ? size & 7 : 0;
    const std::uintptr_t count = has_tag ? size >> 3 : size;
    if ((count != 1 && count != 2) || (sign_and_flags & 3)) return 0;
    std::uint32_t digits[2];
    memcpy(digits, reinterpret_cast<const void*>(at + 2 * kWord), sizeof digits);
    return digits[0] | (count == 2 ? std::uintptr_t{digits[1]} << kDigitBits : 0);
  }
};

}  // namespace cistern::leaks
