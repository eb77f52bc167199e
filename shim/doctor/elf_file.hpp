// A program or library as it lies in a file: for which machine, what it needs, what it defines. Files may be anything:
// every offset in them is checked.
#pragma once
#include <elf.h>

#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::doctor {

class ElfFile {
 public:
  // `bytes` stay where they are for as long as this is asked.
  explicit ElfFile(std::string_view bytes);

  bool is_elf() const { return is_elf_; }
  bool has_64_bits() const { return has_64_bits_; }
  unsigned machine() const { return machine_; }
  bool is_for_this_machine() const;
  // The following is known for files for this machine only.
  bool is_dynamic() const { return dynamic_bytes_ != 0; }
  std::string_view loader() const { return loader_; }  // empty: none
  bool is_symbolic() const { return symbolic_; }       // its own definitions come first (-Bsymbolic)
  bool defines(std::string_view name) const;           // for others to bind to
  bool needs(std::string_view library) const;
  // Whether it contains the text anywhere: what its code compares or reads.
  bool mentions(std::string_view text) const { return bytes_.find(text) != bytes_.npos; }
  // The newest version of the C library that it needs of `libc.so.6`, or itself defines: "2.35"; empty: none.
  String newest_needed() const;
  String newest_defined() const;

 private:
  template <class T>
  const T* at(std::size_t offset) const;
  template <class T>
  const T* in_memory(Elf64_Addr address) const;
  std::string_view string(std::size_t offset) const;
  struct Range {
    std::size_t begin, end;
  };
  Range symbols_for_others() const;
  void read_segments(const Elf64_Ehdr& header);
  void read_dynamic();

  std::string_view bytes_, loader_;
  bool is_elf_ = false, has_64_bits_ = false, symbolic_ = false;
  unsigned machine_ = 0;
  std::size_t segments_ = 0, segment_count_ = 0, dynamic_ = 0, dynamic_bytes_ = 0;
  Elf64_Addr strings_ = 0, symbols_ = 0, gnu_hash_ = 0, hash_ = 0, needed_versions_ = 0, defined_versions_ = 0;
  Vector<std::uint64_t> needed_;
};

// "x86-64"
String machine_name(unsigned machine);
unsigned this_machine();
// Compares two versions such as "2.35".
bool is_older(std::string_view version, std::string_view other);

}  // namespace cistern::doctor
