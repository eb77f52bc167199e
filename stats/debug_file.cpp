// See debug_file.hpp.
#include "stats/debug_file.hpp"

#include <backtrace.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>

#include "pool/base/file_status.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/system_call.hpp"

// libbacktrace's own: takes ".zdebug" sections, which are "ZLIB", the size in the other byte order, and the stream.
extern "C" int backtrace_uncompress_zdebug(backtrace_state* state, const unsigned char* compressed,
                                           std::size_t compressed_bytes, backtrace_error_callback on_error, void* data,
                                           unsigned char** inflated, std::size_t* inflated_bytes);

extern "C" void backtrace_free(backtrace_state*, void* block, std::size_t, backtrace_error_callback, void*);

namespace cistern {
namespace {

constexpr std::size_t kWindowBytes = 16 << 10;
constexpr std::uint64_t kInflatedBytesMax = 256 << 20;
constexpr std::size_t kTextBytesMax = 32 << 10;

// The kernel's answer is an error, or less than was asked for at the file's end.
long read_file(int file, std::uint64_t at, void* to, std::size_t bytes) {
  if (at > INT64_MAX) return -1;
  return system_call(SYS_pread64, static_cast<std::uintptr_t>(file), reinterpret_cast<std::uintptr_t>(to), bytes, at);
}

bool read_all(int file, std::uint64_t at, void* to, std::size_t bytes) {
  return read_file(file, at, to, bytes) == static_cast<long>(bytes);
}

void ignore_error(void*, const char*, int) {}

// It may be a pipe or a device by now: neither may hold up who opens it.
int open_regular(const String& path) {
  const int file = keep_apart(system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD),
                                          reinterpret_cast<std::uintptr_t>(path.c_str()),
                                          static_cast<std::uintptr_t>(O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)));
  struct stat status;
  if (file < 0 || (status_of_file(file, status) == 0 && S_ISREG(status.st_mode))) return file;
  system_call(SYS_close, static_cast<std::uintptr_t>(file));
  return -1;
}

bool is_readable(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_shentsize == sizeof(Elf64_Shdr) &&
         header.e_shstrndx < header.e_shnum;
}

}  // namespace

Section::Section(int file, const Elf64_Shdr& header) : file_(file), begin_(header.sh_offset), bytes_(header.sh_size) {
  if (header.sh_type == SHT_NOBITS) bytes_ = 0;
  if (header.sh_flags & SHF_COMPRESSED) inflate(header);
}

Section::~Section() {
  if (inflated_)
    backtrace_free(nullptr, inflated_, bytes_, nullptr, nullptr);
  else if (window_)
    internal_deallocate(window_, kWindowBytes);
}

// A section that cannot be inflated is an empty one.
void Section::inflate(const Elf64_Shdr& header) {
  constexpr unsigned kPrefixBytes = 12;
  // libbacktrace keeps the memory for the inflated part of a damaged stream.
  constexpr unsigned kFailuresMax = 8;
  static constinit std::atomic<unsigned> failures{0};
  Elf64_Chdr about;
  bytes_ = 0;
  if (header.sh_size <= sizeof about || header.sh_size > kInflatedBytesMax ||
      !read_all(file_, begin_, &about, sizeof about) || about.ch_type != ELFCOMPRESS_ZLIB || !about.ch_size ||
      about.ch_size > kInflatedBytesMax || failures.load(std::memory_order_relaxed) == kFailuresMax)
    return;
  const std::size_t stream_bytes = header.sh_size - sizeof about;
  auto* const stream = static_cast<unsigned char*>(internal_try_allocate(kPrefixBytes + stream_bytes));
  if (!stream) return;
  if (read_all(file_, begin_ + sizeof about, stream + kPrefixBytes, stream_bytes)) {
    constexpr char kMagic[] = {'Z', 'L', 'I', 'B'};
    std::memcpy(stream, kMagic, sizeof kMagic);
    const std::uint64_t size = __builtin_bswap64(about.ch_size);
    std::memcpy(stream + sizeof kMagic, &size, sizeof size);
    std::size_t inflated_bytes = 0;
    backtrace_uncompress_zdebug(nullptr, stream, kPrefixBytes + stream_bytes, ignore_error, nullptr, &inflated_,
                                &inflated_bytes);
    if (inflated_)
      bytes_ = window_bytes_ = inflated_bytes;
    else
      failures.fetch_add(1, std::memory_order_relaxed);
    window_ = reinterpret_cast<char*>(inflated_);
  }
  internal_deallocate(stream, kPrefixBytes + stream_bytes);
}

bool Section::read_afar(std::uint64_t at, void* to, std::size_t bytes) {
  if (at > bytes_ || bytes > bytes_ - at || bytes > kWindowBytes) return false;
  if (!window_) {
    window_ = static_cast<char*>(internal_try_allocate(kWindowBytes));
    if (!window_) return false;
  }
  window_at_ = at;
  const long answer = read_file(file_, begin_ + at, window_, std::min<std::uint64_t>(kWindowBytes, bytes_ - at));
  window_bytes_ = answer > 0 ? static_cast<std::size_t>(answer) : 0;
  if (bytes > window_bytes_) return false;
  std::memcpy(to, window_, bytes);
  return true;
}

DebugFile::DebugFile(const String& path) : file_(open_regular(path)) {
  if (file_ < 0 || (read_all(file_, 0, &header_, sizeof header_) && is_readable(header_))) return;
  system_call(SYS_close, static_cast<std::uintptr_t>(file_));
  file_ = -1;
}

DebugFile::~DebugFile() {
  if (file_ >= 0) system_call(SYS_close, static_cast<std::uintptr_t>(file_));
}

String DebugFile::real_path() const {
  char digits[12];
  char* first = digits + sizeof digits;
  *--first = '\0';
  unsigned rest = static_cast<unsigned>(file_);
  do *--first = static_cast<char>('0' + rest % 10);
  while (rest /= 10);
  const String link = String("/proc/self/fd/") + first;
  String path(4096, '\0');
  const long length =
      system_call(SYS_readlinkat, static_cast<std::uintptr_t>(AT_FDCWD), reinterpret_cast<std::uintptr_t>(link.c_str()),
                  reinterpret_cast<std::uintptr_t>(path.data()), path.size());
  return length > 0 ? String(path, 0, static_cast<std::size_t>(length)) : String();
}

unsigned DebugFile::find(std::string_view name, unsigned number, Elf64_Shdr& header) const {
  Elf64_Shdr names;
  const auto header_at = [this](unsigned at) { return header_.e_shoff + std::uint64_t{at} * sizeof(Elf64_Shdr); };
  char found[32];
  if (!is_open() || name.size() >= sizeof found ||
      !read_all(file_, header_at(header_.e_shstrndx), &names, sizeof names))
    return 0;
  for (; number < header_.e_shnum; ++number) {
    if (!read_all(file_, header_at(number), &header, sizeof header)) return 0;
    if (!read_all(file_, names.sh_offset + header.sh_name, found, name.size() + 1)) continue;
    if (name == std::string_view(found, name.size()) && found[name.size()] == '\0') return number;
  }
  return 0;
}

Section& DebugFile::opened(unsigned number, const Elf64_Shdr& header) {
  for (Named& known : sections_)
    if (known.number == number) return known.section;
  return sections_.emplace_back(number, file_, header).section;
}

std::uint64_t Cursor::unsigned_leb() {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint64_t byte = number(1);
    if (shift < 64) value |= (byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
}

std::uint64_t Cursor::signed_leb() {
  std::uint64_t value = 0;
  for (unsigned shift = 0;;) {
    const std::uint64_t byte = number(1);
    if (shift < 64) value |= (byte & 0x7f) << shift;
    shift += 7;
    if (byte & 0x80) continue;
    return shift < 64 && (byte & 0x40) ? value | ~std::uint64_t{0} << shift : value;
  }
}

String Cursor::text() {
  String text;
  while (const auto byte = static_cast<char>(number(1))) {
    if (text.size() == kTextBytesMax) fail();
    text += byte;
  }
  if (failed_) text.clear();
  return text;
}

void Cursor::skip_text() {
  while (number(1)) {
  }
}

}  // namespace cistern
