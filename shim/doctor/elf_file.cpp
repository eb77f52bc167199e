// See elf_file.hpp.
#include "shim/doctor/elf_file.hpp"

#include <string.h>

#include <algorithm>
#include <charconv>

#include "shim/doctor/system.hpp"

namespace cistern::doctor {
namespace {

constexpr std::string_view kPrefix = "GLIBC_";

// The parts of "2.35", as far as they are numbers.
std::pair<int, int> parts_of(std::string_view version) {
  std::pair<int, int> parts{0, 0};
  const auto [end, error] = std::from_chars(version.begin(), version.end(), parts.first);
  if (error == std::errc{} && end != version.end() && *end == '.')
    std::from_chars(end + 1, version.end(), parts.second);
  return parts;
}

void keep_newest(String& newest, std::string_view name) {
  if (!name.starts_with(kPrefix)) return;
  name.remove_prefix(kPrefix.size());
  if (name.empty() || name[0] < '0' || name[0] > '9') return;  // GLIBC_PRIVATE
  if (newest.empty() || is_older(newest, name)) newest = name;
}

}  // namespace

bool is_older(std::string_view version, std::string_view other) { return parts_of(version) < parts_of(other); }

unsigned this_machine() {
#ifdef __aarch64__
  return EM_AARCH64;
#else
  return EM_X86_64;
#endif
}

String machine_name(unsigned machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "i386";
    case EM_ARM:
      return "arm";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    default:
      return "machine " + number(machine);
  }
}

template <class T>
const T* ElfFile::at(std::size_t offset) const {
  if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(bytes_.data() + offset);
}

// The value that will lie at `address` once it is loaded.
template <class T>
const T* ElfFile::in_memory(Elf64_Addr address) const {
  for (std::size_t i = 0; i < segment_count_; ++i) {
    const auto* segment = at<Elf64_Phdr>(segments_ + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    if (segment->p_type == PT_LOAD && address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz)
      return at<T>(segment->p_offset + (address - segment->p_vaddr));
  }
  return nullptr;
}

std::string_view ElfFile::string(std::size_t offset) const {
  const char* const first = in_memory<char>(strings_ + offset);
  if (!first) return {};
  const auto left = static_cast<std::size_t>(bytes_.data() + bytes_.size() - first);
  return {first, strnlen(first, left)};
}

ElfFile::ElfFile(std::string_view bytes) : bytes_(bytes) {
  const auto* header = at<Elf64_Ehdr>(0);
  if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  is_elf_ = true;
  has_64_bits_ = header->e_ident[EI_CLASS] == ELFCLASS64;
  machine_ = header->e_machine;  // at the same place in files of 32 bits
  if (is_for_this_machine()) read_segments(*header);
}

bool ElfFile::is_for_this_machine() const { return is_elf_ && has_64_bits_ && machine_ == this_machine(); }

void ElfFile::read_segments(const Elf64_Ehdr& header) {
  segments_ = header.e_phoff;
  segment_count_ = header.e_phnum;
  for (std::size_t i = 0; i < segment_count_; ++i) {
    const auto* segment = at<Elf64_Phdr>(segments_ + i * sizeof(Elf64_Phdr));
    if (!segment) return;
    if (segment->p_type == PT_DYNAMIC) {
      dynamic_ = segment->p_offset;
      dynamic_bytes_ = segment->p_filesz;
    }
    if (segment->p_type == PT_INTERP && at<char>(segment->p_offset)) {
      const std::string_view rest = bytes_.substr(segment->p_offset, segment->p_filesz);
      loader_ = rest.substr(0, rest.find('\0'));
    }
  }
  read_dynamic();
}

void ElfFile::read_dynamic() {
  for (std::size_t i = 0; i < dynamic_bytes_ / sizeof(Elf64_Dyn); ++i) {
    const auto* entry = at<Elf64_Dyn>(dynamic_ + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) return;
    const Elf64_Addr value = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_NEEDED:
        needed_.push_back(value);
        break;
      case DT_STRTAB:
        strings_ = value;
        break;
      case DT_SYMTAB:
        symbols_ = value;
        break;
      case DT_GNU_HASH:
        gnu_hash_ = value;
        break;
      case DT_HASH:
        hash_ = value;
        break;
      case DT_VERNEED:
        needed_versions_ = value;
        break;
      case DT_VERDEF:
        defined_versions_ = value;
        break;
      case DT_SYMBOLIC:
        symbolic_ = true;
        break;
      case DT_FLAGS:
        symbolic_ |= (value & DF_SYMBOLIC) != 0;
        break;
      default:
        break;
    }
  }
}

// Symbols that others may bind to: all behind the first one of the hash table (GNU's), or all at all (System V's).
// GNU's does not say how many there are: the last one of its last chain is marked.
ElfFile::Range ElfFile::symbols_for_others() const {
  if (const auto* counts = hash_ ? in_memory<std::uint32_t[2]>(hash_) : nullptr) return {1, (*counts)[1]};
  const auto* head = gnu_hash_ ? in_memory<std::uint32_t[4]>(gnu_hash_) : nullptr;
  if (!head) return {0, 0};
  const std::uint32_t buckets = (*head)[0], first = (*head)[1];
  const Elf64_Addr buckets_at = gnu_hash_ + 16 + Elf64_Addr{(*head)[2]} * 8;
  const Elf64_Addr chains_at = buckets_at + Elf64_Addr{buckets} * 4;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) {
    const auto* bucket = in_memory<std::uint32_t>(buckets_at + Elf64_Addr{i} * 4);
    if (!bucket) return {0, 0};
    last = std::max(last, *bucket);
  }
  if (last < first) return {0, 0};
  for (const std::uint32_t* mark; (mark = in_memory<std::uint32_t>(chains_at + Elf64_Addr{last - first} * 4)); ++last)
    if (*mark & 1) return {first, std::size_t{last} + 1};
  return {0, 0};
}

bool ElfFile::defines(std::string_view name) const {
  const Range range = symbols_for_others();
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const auto* symbol = in_memory<Elf64_Sym>(symbols_ + i * sizeof(Elf64_Sym));
    if (!symbol) return false;
    if (symbol->st_shndx != SHN_UNDEF && symbol->st_value && string(symbol->st_name) == name) return true;
  }
  return false;
}

bool ElfFile::needs(std::string_view library) const {
  return std::any_of(needed_.begin(), needed_.end(), [&](std::size_t name) { return string(name) == library; });
}

String ElfFile::newest_needed() const {
  String newest;
  const auto* of_library = needed_versions_ ? in_memory<Elf64_Verneed>(needed_versions_) : nullptr;
  for (Elf64_Addr address = needed_versions_; of_library; of_library = in_memory<Elf64_Verneed>(address)) {
    Elf64_Addr name_at = address + of_library->vn_aux;
    for (unsigned i = 0; i < of_library->vn_cnt; ++i) {
      const auto* name = in_memory<Elf64_Vernaux>(name_at);
      if (!name) break;
      if (!(name->vna_flags & VER_FLG_WEAK)) keep_newest(newest, string(name->vna_name));
      name_at += name->vna_next;
    }
    if (of_library->vn_next == 0) break;
    address += of_library->vn_next;
  }
  return newest;
}

String ElfFile::newest_defined() const {
  String newest;
  const auto* version = defined_versions_ ? in_memory<Elf64_Verdef>(defined_versions_) : nullptr;
  for (Elf64_Addr address = defined_versions_; version; version = in_memory<Elf64_Verdef>(address)) {
    const auto* name = in_memory<Elf64_Verdaux>(address + version->vd_aux);
    if (name) keep_newest(newest, string(name->vda_name));
    if (version->vd_next == 0) break;
    address += version->vd_next;
  }
  return newest;
}

}  // namespace cistern::doctor
