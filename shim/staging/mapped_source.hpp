// Reads a mapped file for a copy to the device by the file, out of the page cache, and not through its mapping: no page
// table is filled for it, and nothing can fault. The bytes are those that the program sees through the mapping: pages
// of a private file that the program has written have to be read there.
#pragma once
#include <optional>

#include "pool/staging/guarded_copy.hpp"
#include "shim/process/memory_map.hpp"
#include "shim/staging/open_file.hpp"

namespace cistern {

// The mapping around an address, as it is now. `path` lies in `text`, of so many bytes. Nothing: there is none, or its
// path is longer, or the system cannot say. `may_read_all`: the text of all mappings may be read, which can be long.
std::optional<Mapping> mapping_around(std::uintptr_t address, char* text, std::size_t text_bytes, bool may_read_all);

class MappedSource final : public staging::SourceReader {
 public:
  static constexpr std::size_t kBytesMin = std::size_t{1} << 20;

  MappedSource() = default;
  ~MappedSource();
  MappedSource(const MappedSource&) = delete;
  MappedSource& operator=(const MappedSource&) = delete;

  // For one copy of these bytes. False: the file can't be opened, or is another one by now, or they are too few or in
  // several mappings.
  bool open(const char* first, std::size_t bytes);
  // Any number of threads. False: some of it has to be read through the mapping.
  bool read(char* to, const char* from, std::size_t bytes) const override;
  // Whether the file's byte there is in the page cache. If not, the system may begin to read it.
  bool is_cached(const char* address) const;

 private:
  std::uintptr_t offset_of(const char* address) const {
    return static_cast<std::uintptr_t>(offset_ + (reinterpret_cast<std::uintptr_t>(address) - first_));
  }
  bool has_own_pages(std::uintptr_t first, std::size_t bytes) const;

  OpenFile file_, pages_;
  std::uintptr_t first_ = 0;
  std::uint64_t offset_ = 0;  // in the file, of `first_`
  int place_ = -1;            // in the table of what is open
};

// A child has the files of copies that other threads of its parent were making.
void mapped_sources_after_fork_in_child();

}  // namespace cistern
