// See shared_names.hpp. Records lie one behind the other and never change once a place of the table leads to them.
// No process waits: one may be killed at any point. Room that was taken for a record that then was not finished, or
// that another process wrote first, stays unused.
//
// The other processes are not trusted: one may have given up rights that this one has. The size in a record is copied,
// then checked.
#include "stats/shared_names.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "pool/base/system_call.hpp"

namespace cistern {
namespace {

constexpr std::uint32_t kPlaces = 1 << 13, kProbes = 16;
constexpr std::uint32_t kTextBytes = (1 << 20) - (kPlaces + 1) * sizeof(std::uint32_t);
constexpr std::size_t kRecordBytesMax = 16 << 10;

// Zeros, as the system gives them, are an empty table: an unused page is not touched.
struct Table {
  std::atomic<std::uint32_t> used;             // bytes of text; more than there is: it is full
  std::atomic<std::uint32_t> places[kPlaces];  // where in text a record begins, plus one; 0: free
  char text[kTextBytes];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(Table) == 1 << 20);

struct Record {
  NameKey key;
  std::uint32_t bytes;   // with this
  std::uint32_t frames;  // each: RecordFrame, function, file
};
struct RecordFrame {
  std::uint32_t line;
  std::uint16_t function_bytes, file_bytes;
  bool is_ours, is_rust;
};

constinit std::atomic<Table*> the_table{nullptr};

std::uint64_t mixed(std::uint64_t hash, std::string_view text) {
  for (const char one : text) hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3;  // FNV-1a
  return hash * 0x9E3779B97F4A7C15;
}

std::atomic<std::uint32_t>& place_of(Table& table, const NameKey& key, std::uint32_t probe) {
  const std::uint64_t hash = (key.address ^ key.module) * 0x9E3779B97F4A7C15;
  return table.places[((hash >> 32) + probe) % kPlaces];
}

// Reads what another process wrote.
class Reader {
 public:
  Reader(const Table& table, std::uint32_t first, std::uint32_t end)
      : text_(table.text), at_(first), end_(std::min(end, kTextBytes)) {}
  template <class T>
  bool read(T& value) {
    if (at_ > end_ || end_ - at_ < sizeof value) return false;
    std::memcpy(&value, text_ + at_, sizeof value);
    at_ += static_cast<std::uint32_t>(sizeof value);
    return true;
  }
  bool read(String& text, std::uint16_t bytes) {
    if (at_ > end_ || end_ - at_ < bytes) return false;
    text.assign(text_ + at_, bytes);
    at_ += bytes;
    return true;
  }

 private:
  const char* const text_;
  std::uint32_t at_;
  const std::uint32_t end_;
};

// None: it is the record of something else, or not one.
std::optional<Vector<NamedFrame>> read_record(const Table& table, std::uint32_t first, const NameKey& key) {
  Record record;
  if (!Reader(table, first, kTextBytes).read(record) || record.key.address != key.address ||
      record.key.module != key.module)
    return {};
  Reader reader(table, first, record.bytes > kRecordBytesMax ? 0 : first + record.bytes);
  Vector<NamedFrame> frames;
  if (!reader.read(record)) return {};
  for (std::uint32_t i = 0; i < record.frames; ++i) {
    RecordFrame head;
    NamedFrame frame{};
    if (!reader.read(head) || !reader.read(frame.function, head.function_bytes) ||
        !reader.read(frame.file, head.file_bytes))
      return {};
    frame.line = head.line;
    frame.is_ours = head.is_ours;
    frame.is_rust = head.is_rust;
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace

std::uint64_t hash_of_module(std::uint64_t base, std::string_view path, std::string_view build_id) {
  return mixed(mixed(base, path), build_id);
}

void prepare_shared_names() {
  if (the_table.load(std::memory_order_relaxed)) return;
  const long memory = system_call(SYS_mmap, 0, sizeof(Table), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, static_cast<std::uintptr_t>(-1));
  if (memory > 0) the_table.store(reinterpret_cast<Table*>(memory), std::memory_order_release);
}

std::optional<Vector<NamedFrame>> shared_names(const NameKey& key) {
  Table* const table = the_table.load(std::memory_order_acquire);
  for (std::uint32_t probe = 0; table && probe < kProbes; ++probe) {
    const std::uint32_t place = place_of(*table, key, probe).load(std::memory_order_acquire);
    if (!place) return {};
    if (auto frames = read_record(*table, place - 1, key)) return frames;
  }
  return {};
}

void share_names(const NameKey& key, const Vector<NamedFrame>& frames) {
  Table* const table = the_table.load(std::memory_order_acquire);
  std::size_t bytes = sizeof(Record);
  for (const NamedFrame& frame : frames) bytes += sizeof(RecordFrame) + frame.function.size() + frame.file.size();
  if (!table || bytes > kRecordBytesMax) return;
  const auto room = static_cast<std::uint32_t>((bytes + 7) & ~std::size_t{7});
  if (table->used.load() > kTextBytes - kRecordBytesMax) return;
  const std::uint32_t first = table->used.fetch_add(room);
  if (first > kTextBytes - room) return;
  char* at = table->text + first;
  const auto write = [&at](const void* from, std::size_t count) {
    std::memcpy(at, from, count);
    at += count;
  };
  const Record record{key, static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(frames.size())};
  write(&record, sizeof record);
  for (const NamedFrame& frame : frames) {
    const RecordFrame head{frame.line, static_cast<std::uint16_t>(frame.function.size()),
                           static_cast<std::uint16_t>(frame.file.size()), frame.is_ours, frame.is_rust};
    write(&head, sizeof head);
    write(frame.function.data(), frame.function.size());
    write(frame.file.data(), frame.file.size());
  }
  for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
    std::uint32_t free = 0;
    if (place_of(*table, key, probe).compare_exchange_strong(free, first + 1, std::memory_order_release)) return;
    if (read_record(*table, free - 1, key)) return;
  }
}

SharedNamesPlace shared_names_place() {
  const Table* const table = the_table.load(std::memory_order_acquire);
  return {reinterpret_cast<std::uintptr_t>(table), table ? sizeof *table : 0};
}

}  // namespace cistern
