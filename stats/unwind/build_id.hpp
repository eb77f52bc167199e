// The GNU build id of a loaded file, read where it is mapped: dl_iterate_phdr would take the dynamic linker's lock.
#pragma once
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace cistern {

// Among the notes at [note, end); empty: none is there.
inline std::string_view build_id_among(const char* note, const char* end, std::size_t alignment) {
  const auto padded = [alignment](std::size_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  while (note<end&& static_cast<std::size_t>(end - note)> sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const std::size_t description = sizeof header + padded(header.n_namesz);
    const std::size_t bytes = description + padded(header.n_descsz);
    if (bytes > static_cast<std::size_t>(end - note)) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && !std::memcmp(note + sizeof header, "GNU", 4))
      return {note + description, header.n_descsz};
    note += bytes;
  }
  return {};
}

// Of the file that is mapped from `start`, where its header is; nothing beyond `end` is looked at. As the dynamic
// linker maps it: `bias` is address in the process minus address in the file; or as one piece: null.
inline std::string_view build_id_of(const char* start, const char* end, const std::uintptr_t* bias) {
  const auto size = static_cast<std::size_t>(end - start);
  ElfW(Ehdr) header;
  if (size < sizeof header) return {};
  std::memcpy(&header, start, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return {};
  if (header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) > size) return {};
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    std::memcpy(&segment, start + header.e_phoff + static_cast<std::size_t>(i) * sizeof segment, sizeof segment);
    const auto* const notes = bias ? reinterpret_cast<const char*>(*bias + segment.p_vaddr) : start + segment.p_offset;
    if (segment.p_type != PT_NOTE || notes < start || notes > end) continue;
    const auto bytes = std::min<std::size_t>(segment.p_filesz, static_cast<std::size_t>(end - notes));
    const std::string_view id = build_id_among(notes, notes + bytes, segment.p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace cistern
