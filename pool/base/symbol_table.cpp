// See symbol_table.hpp. The layout of DT_GNU_HASH: a header of four words, a Bloom filter that knows most names that
// are not there, the first symbol of each bucket, and one word a symbol: its hash, whose lowest bit ends the bucket.
#include "pool/base/symbol_table.hpp"

#include <algorithm>

namespace cistern {
namespace {

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// Not strcmp: a sanitizer's, while it starts, is one that can't be called yet.
bool same(const char* one, const char* other) {
  while (*one && *one == *other) ++one, ++other;
  return *one == *other;
}

// The loader has made addresses of most of these; of an object that it maps read-only they are offsets still.
template <class T>
const T* table_at(const link_map& module, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < module.l_addr ? module.l_addr + value : value);
}

}  // namespace

SymbolTable::SymbolTable(const link_map& module) : offset_(module.l_addr) {
  const std::uint32_t* hashes = nullptr;
  for (const ElfW(Dyn)* entry = module.l_ld; entry && entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) value = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols_ = table_at<ElfW(Sym)>(module, value);
    if (entry->d_tag == DT_STRTAB) names_ = table_at<char>(module, value);
    if (entry->d_tag == DT_GNU_HASH) hashes = table_at<std::uint32_t>(module, value);
  }
  if (!hashes || !symbols_ || !names_) return;
  bucket_count_ = hashes[0];
  first_hashed_ = hashes[1];
  filter_mask_ = hashes[2] - 1;
  filter_shift_ = hashes[3];
  filter_ = reinterpret_cast<const ElfW(Addr)*>(hashes + 4);
  buckets_ = reinterpret_cast<const std::uint32_t*>(filter_ + hashes[2]);
  chains_ = buckets_ + bucket_count_;
}

std::size_t SymbolTable::count() const {
  std::size_t last = 0;
  for (std::uint32_t bucket = 0; bucket < bucket_count_; ++bucket) last = std::max<std::size_t>(last, buckets_[bucket]);
  if (!last) return 0;
  while (!(hash_of(last) & 1)) ++last;
  return last + 1;
}

void* SymbolTable::address_of(const char* name) const {
  const std::size_t symbol = first_of(name);
  return symbol == kNone ? nullptr : reinterpret_cast<void*>(offset_ + symbols_[symbol].st_value);
}

bool SymbolTable::may_have(std::uint32_t hash) const {
  constexpr std::uint32_t kBits = 8 * sizeof(ElfW(Addr));
  const ElfW(Addr) word = filter_[hash / kBits & filter_mask_];
  return word >> hash % kBits & word >> (hash >> filter_shift_) % kBits & 1;
}

std::size_t SymbolTable::first_of(const char* name) const {
  if (!bucket_count_) return kNone;
  const std::uint32_t hash = gnu_hash(name);
  return may_have(hash) ? first_match(buckets_[hash % bucket_count_], name, hash) : kNone;
}

std::size_t SymbolTable::next_of(std::size_t symbol, const char* name) const {
  return hash_of(symbol) & 1 ? kNone : first_match(symbol + 1, name, gnu_hash(name));
}

// From `symbol` to the end of its bucket.
std::size_t SymbolTable::first_match(std::size_t symbol, const char* name, std::uint32_t hash) const {
  if (symbol == kNone) return kNone;
  for (;; ++symbol) {
    const std::uint32_t its_hash = hash_of(symbol);
    if ((its_hash | 1) == (hash | 1) && same(names_ + symbols_[symbol].st_name, name) &&
        symbols_[symbol].st_shndx != SHN_UNDEF)
      return symbol;
    if (its_hash & 1) return kNone;
  }
}

}  // namespace cistern
