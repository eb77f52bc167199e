// See parquet.hpp. A column is one data page for each group of rows. Texts are numbers of a dictionary in front of it:
// stacks and names recur, in each process of a run. All pages are packed by gzip, which every reader has.
#include "stats/formats/parquet.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <unordered_map>

#include "stats/formats/gzip.hpp"
#include "stats/formats/read.hpp"
#include "stats/formats/table.hpp"
#include "stats/formats/thrift.hpp"

namespace cistern::formats {
namespace {

// --- parquet.thrift
enum Type { kBoolean = 0, kInt64 = 2, kDouble = 5, kByteArray = 6 };
enum Encoding { kPlain = 0, kRle = 3, kRleDictionary = 8 };
enum Repetition { kRequired, kOptional };
enum { kGzip = 2, kUtf8 = 0 };
enum PageType { kDataPage = 0, kDictionaryPage = 2 };
enum FileField { kVersion = 1, kSchema, kRows, kRowGroups, kCreatedBy = 6 };
enum SchemaField { kSchemaType = 1, kRepetition = 3, kSchemaName, kChildren, kConvertedType, kLogicalType = 10 };
enum LogicalField { kString = 1 };
enum RowGroupField { kColumns = 1, kGroupBytes, kGroupRows };
enum ChunkField { kChunkOffset = 2, kChunkData };
enum ChunkDataField {
  kChunkType = 1,
  kChunkEncodings,
  kChunkPath,
  kChunkCodec,
  kChunkValues,
  kChunkBytes,
  kChunkPackedBytes,
  kDataOffset = 9,
  kDictionaryOffset = 11
};
enum PageField { kPageType = 1, kPageBytes, kPagePackedBytes, kDataHead = 5, kDictionaryHead = 7 };
enum DataHeadField { kDataValues = 1, kDataEncoding, kDefinitionEncoding, kRepetitionEncoding };
enum DictionaryHeadField { kDictionaryValues = 1, kDictionaryEncoding };

constexpr char kMagic[] = "PAR1";
constexpr std::size_t kGroupRowsMax = std::size_t{64} << 10, kGroupBytesMax = std::size_t{16} << 20;

static_assert(std::endian::native == std::endian::little);
template <class Value>
void append(std::string& bytes, Value value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The least significant bit first.
std::string bit_packed(const std::vector<std::uint32_t>& values, unsigned width) {
  std::string bytes;
  std::uint64_t bits = 0;
  unsigned count = 0;
  for (const std::uint32_t value : values) {
    bits |= std::uint64_t{value} << count;
    for (count += width; count >= 8; count -= 8, bits >>= 8) bytes += static_cast<char>(bits);
  }
  if (count) bytes += static_cast<char>(bits);
  return bytes;
}

// The RLE/bit-packing hybrid, as one run of groups of eight values.
std::string hybrid(const std::vector<std::uint32_t>& values, unsigned width) {
  const std::size_t groups = (values.size() + 7) / 8;
  std::string bytes;
  Count head = groups << 1 | 1;
  for (; head >= 0x80; head >>= 7) bytes += static_cast<char>(head | 0x80);
  bytes += static_cast<char>(head);
  bytes += bit_packed(values, width);
  bytes.resize(bytes.size() + (groups * width - (values.size() * width + 7) / 8));
  return bytes;
}

// A page behind its head.
struct Page {
  std::string bytes;
  std::size_t unpacked_bytes;
};
Page page_of(const std::string& content, PageType type, PageField head_field, const ThriftStruct& head) {
  if (content.size() > std::numeric_limits<std::int32_t>::max())
    throw BadReport("has longer texts than Parquet has room for");
  const std::string packed = gzip(content);
  ThriftStruct page;
  page.number32(kPageType, type);
  page.number32(kPageBytes, content.size());
  page.number32(kPagePackedBytes, packed.size());
  page.structure(head_field, head);
  const std::string whole = page.bytes();
  return {whole + packed, whole.size() + content.size()};
}

// --- A column, with the rows of the group that is being filled
class Column {
 public:
  Column(const char* name, Type type, Repetition repetition) : name_(name), type_(type), repetition_(repetition) {}

  void add_null() { defined_.push_back(0); }
  void add_text(const std::string& value) {
    const auto [at, is_new] = numbers_.try_emplace(value, static_cast<std::uint32_t>(numbers_.size()));
    if (is_new) {
      append(dictionary_, static_cast<std::uint32_t>(value.size()));
      dictionary_ += value;
    }
    defined_.push_back(1);
    indices_.push_back(at->second);
  }
  void add_flag(bool value) {
    defined_.push_back(1);
    indices_.push_back(value);
  }
  template <class Value>
  void add_number(Value value) {
    defined_.push_back(1);
    append(plain_, value);
  }

  std::size_t bytes() const { return dictionary_.size() + plain_.size(); }

  std::string schema() const {
    ThriftStruct of;
    of.number32(kSchemaType, type_);
    of.number32(kRepetition, repetition_);
    of.text(kSchemaName, name_);
    if (type_ == kByteArray) {
      of.number32(kConvertedType, kUtf8);
      ThriftStruct logical;
      logical.structure(kString, {});
      of.structure(kLogicalType, logical);
    }
    return of.bytes();
  }

  struct Chunk {
    std::string pages, metadata;
    std::size_t unpacked_bytes;
  };
  // The column is empty then. `offset`: where the pages will lie in the file.
  Chunk take(Count offset) {
    const bool has_dictionary = type_ == kByteArray;
    const Page dictionary = has_dictionary ? dictionary_page() : Page{};
    const Page data = data_page();
    Chunk chunk{dictionary.bytes + data.bytes, {}, dictionary.unpacked_bytes + data.unpacked_bytes};
    ThriftStruct of;
    of.number32(kChunkType, type_);
    of.numbers32(kChunkEncodings,
                 has_dictionary ? std::vector<Count>{kPlain, kRle, kRleDictionary} : std::vector<Count>{kPlain, kRle});
    of.texts(kChunkPath, {name_});
    of.number32(kChunkCodec, kGzip);
    of.number64(kChunkValues, defined_.size());
    of.number64(kChunkBytes, chunk.unpacked_bytes);
    of.number64(kChunkPackedBytes, chunk.pages.size());
    of.number64(kDataOffset, offset + dictionary.bytes.size());
    if (has_dictionary) of.number64(kDictionaryOffset, offset);
    ThriftStruct whole;
    whole.number64(kChunkOffset, offset);
    whole.structure(kChunkData, of);
    chunk.metadata = whole.bytes();
    *this = Column(name_, type_, repetition_);
    return chunk;
  }

 private:
  Page dictionary_page() const {
    ThriftStruct head;
    head.number32(kDictionaryValues, numbers_.size());
    head.number32(kDictionaryEncoding, kPlain);
    return page_of(dictionary_, kDictionaryPage, kDictionaryHead, head);
  }

  Page data_page() const {
    std::string content;
    if (repetition_ == kOptional) {
      const std::string levels = hybrid(defined_, 1);
      append(content, static_cast<std::uint32_t>(levels.size()));
      content += levels;
    }
    if (type_ == kByteArray) {
      const std::size_t texts = std::max<std::size_t>(numbers_.size(), 2);  // no width is 0
      const auto width = static_cast<unsigned>(std::bit_width(texts - 1));
      content += static_cast<char>(width);
      content += hybrid(indices_, width);
    } else {
      content += type_ == kBoolean ? bit_packed(indices_, 1) : plain_;
    }
    ThriftStruct head;
    head.number32(kDataValues, defined_.size());
    head.number32(kDataEncoding, type_ == kByteArray ? kRleDictionary : kPlain);
    head.number32(kDefinitionEncoding, kRle);
    head.number32(kRepetitionEncoding, kRle);
    return page_of(content, kDataPage, kDataHead, head);
  }

  const char* name_;
  Type type_;
  Repetition repetition_;
  std::vector<std::uint32_t> defined_;  // 0: null, of each row
  // For each row that is not null:
  std::string plain_;                   // numbers
  std::vector<std::uint32_t> indices_;  // texts, by their places in the dictionary; flags
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::string dictionary_;
};

struct Columns {
  std::vector<Column> all;
  void operator()(const char* name, const std::string&) { all.emplace_back(name, kByteArray, kOptional); }
  void operator()(const char* name, bool) { all.emplace_back(name, kBoolean, kRequired); }
  void operator()(const char* name, Count) { all.emplace_back(name, kInt64, kRequired); }
  void operator()(const char* name, std::optional<Count>) { all.emplace_back(name, kInt64, kOptional); }
  void operator()(const char* name, std::optional<Seconds>) { all.emplace_back(name, kDouble, kOptional); }
};

struct Values {
  std::vector<Column>::iterator at;
  void operator()(const char*, const std::string& value) { value.empty() ? at->add_null() : at->add_text(value), ++at; }
  void operator()(const char*, bool value) { at++->add_flag(value); }
  void operator()(const char*, Count value) { at++->add_number(signed_count(value)); }
  void operator()(const char* name, std::optional<Count> value) { value ? (*this)(name, *value) : at++->add_null(); }
  void operator()(const char*, std::optional<Seconds> value) { value ? at->add_number(*value) : at->add_null(), ++at; }
};

}  // namespace

class Parquet::Writer {
 public:
  explicit Writer(std::function<void(std::string_view)> write) : write_(std::move(write)) {
    visit(columns_, {}, {});
    put(kMagic);
  }

  void add(const std::string& run_name, const TableRow& row) {
    Values values{columns_.all.begin()};
    visit(values, run_name, row);
    ++rows_;
    std::size_t bytes = 0;
    for (const Column& column : columns_.all) bytes += column.bytes();
    if (++group_rows_ == kGroupRowsMax || bytes > kGroupBytesMax) end_group();
  }

  void end() {
    if (group_rows_) end_group();
    ThriftStruct root;
    root.text(kSchemaName, "cistern");
    root.number32(kChildren, columns_.all.size());
    std::vector<std::string> schema = {root.bytes()};
    for (const Column& column : columns_.all) schema.push_back(column.schema());
    ThriftStruct file;
    file.number32(kVersion, 1);
    file.structures(kSchema, schema);
    file.number64(kRows, rows_);
    file.structures(kRowGroups, groups_);
    file.text(kCreatedBy, std::string("cistern") + " version " CISTERN_VERSION);
    std::string footer = file.bytes();
    append(footer, static_cast<std::uint32_t>(footer.size()));
    put(footer + kMagic);
  }

 private:
  template <class Visitor>
  static void visit(Visitor& visitor, const std::string& run_name, const TableRow& row) {
    visitor("run", run_name);
    visit_columns(visitor, row);
  }

  void put(std::string_view bytes) {
    write_(bytes);
    offset_ += bytes.size();
  }

  void end_group() {
    std::vector<std::string> chunks;
    Count bytes = 0;
    for (Column& column : columns_.all) {
      const Column::Chunk chunk = column.take(offset_);
      put(chunk.pages);
      chunks.push_back(chunk.metadata);
      bytes += chunk.unpacked_bytes;
    }
    ThriftStruct group;
    group.structures(kColumns, chunks);
    group.number64(kGroupBytes, bytes);
    group.number64(kGroupRows, group_rows_);
    groups_.push_back(group.bytes());
    group_rows_ = 0;
  }

  const std::function<void(std::string_view)> write_;
  Columns columns_;
  std::vector<std::string> groups_;  // their metadata
  std::size_t group_rows_ = 0;
  Count rows_ = 0, offset_ = 0;
};

Parquet::Parquet(std::function<void(std::string_view)> write) : writer_(std::make_unique<Writer>(std::move(write))) {}
Parquet::~Parquet() = default;

void Parquet::add(const std::string& run_name, const Run& run) {
  for_each_table_row(run, [&, name = printable(run_name)](const TableRow& row) { writer_->add(name, row); });
}

void Parquet::end() { writer_->end(); }

}  // namespace cistern::formats
