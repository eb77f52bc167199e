// The dynamic symbols of a loaded object, read from its own tables: a look-up that takes no lock, allocates nothing and
// leaves no message where it finds nothing, as dlsym would.
#pragma once
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace cistern {

class SymbolTable {
 public:
  explicit SymbolTable(const link_map& module);

  // Calls visit(const ElfW(Sym)&) for each definition of `name`, one a version.
  template <class Visit>
  void for_each_definition(const char* name, Visit visit) const {
    for (std::size_t at = first_of(name); at != kNone; at = next_of(at, name)) visit(symbols_[at]);
  }
  bool defines(const char* name) const { return first_of(name) != kNone; }
  // Of the first definition, whatever its version; null for none.
  void* address_of(const char* name) const;
  // Where the symbols lie; nothing where the object has no table that this can read.
  const ElfW(Sym) * symbols() const { return symbols_; }
  std::size_t count() const;

 private:
  static constexpr std::size_t kNone = 0;  // the first symbol is never one with a name

  std::size_t first_of(const char* name) const;
  std::size_t next_of(std::size_t symbol, const char* name) const;
  bool may_have(std::uint32_t hash) const;
  std::size_t first_match(std::size_t symbol, const char* name, std::uint32_t hash) const;
  std::uint32_t hash_of(std::size_t symbol) const { return chains_[symbol - first_hashed_]; }

  ElfW(Addr) offset_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  std::uint32_t bucket_count_ = 0, first_hashed_ = 0, filter_mask_ = 0, filter_shift_ = 0;
  const ElfW(Addr) * filter_ = nullptr;
  const std::uint32_t *buckets_ = nullptr, *chains_ = nullptr;
};

}  // namespace cistern
