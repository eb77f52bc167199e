// Tests of parquet.hpp: its parts are bounded, and its metadata is as Thrift writes it. Whole files are opened by
// Arrow in tests/command/export_test.py.
#include "stats/formats/parquet.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "stats/formats/hand_made.hpp"
#include "stats/formats/thrift.hpp"

namespace cistern::formats {
namespace {

struct File {
  std::string bytes;
  std::size_t largest_part = 0;
};
File file_of(const Run& run, std::size_t times) {
  File file;
  Parquet table([&](std::string_view part) {
    file.bytes += part;
    file.largest_part = std::max(file.largest_part, part.size());
  });
  for (std::size_t i = 0; i < times; ++i) table.add("run", run);
  table.end();
  return file;
}

std::uint32_t footer_bytes(const std::string& file) {
  std::uint32_t bytes;
  std::memcpy(&bytes, file.data() + file.size() - 8, sizeof bytes);
  return bytes;
}

TEST(Thrift, FieldsAreWrittenByTheirDistance) {
  ThriftStruct inner;
  inner.number32(3, 1);
  ThriftStruct of;
  of.number32(1, 300), of.number64(4, 2), of.text(5, "ab"), of.structure(6, inner), of.texts(8, {"c"});
  of.numbers32(9, std::vector<Count>(15, 1));
  EXPECT_EQ(of.bytes(), std::string("\x15\xd8\x04\x36\x04\x18\x02"
                                    "ab\x1c\x35\x02\0\x29\x18\x01"
                                    "c\x19\xf5\x0f\2\2\2\2\2\2\2\2\2\2\2\2\2\2\2\0",
                                    36));
}

TEST(Parquet, OfNothingItHasItsColumns) {
  const std::string file = file_of(kNoReports, 1).bytes;
  EXPECT_TRUE(file.starts_with("PAR1"));
  EXPECT_TRUE(file.ends_with("PAR1"));
  EXPECT_EQ(footer_bytes(file), file.size() - 12);
  for (const char* column : {"run", "program", "live_bytes", "stack"})
    EXPECT_NE(file.find(column), file.npos) << column;
}

TEST(Parquet, TheSameRunsAreTheSameBytes) {
  HandMade made;
  made.leak("device:0", "lost", 2, 20, made.stack({made.frame("make"), made.frame("main")}));
  EXPECT_EQ(file_of(made.run, 3).bytes, file_of(made.run, 3).bytes);
}

// Groups of rows end by their number and by their bytes.
TEST(Parquet, WhatIsKeptIsBounded) {
  HandMade made;
  for (int i = 0; i < 1000; ++i)
    made.leak("host", "lost", 1, static_cast<Count>(i), made.stack({made.frame(std::to_string(i).c_str())}));
  const File many = file_of(made.run, 1000);
  EXPECT_LT(many.largest_part, std::size_t{1} << 20);

  std::string noise(std::size_t{1} << 20, ' ');
  Count state = 1;
  HandMade large;
  for (int i = 0; i < 40; ++i) {
    for (char& c : noise) {
      state = state * 6364136223846793005 + 1;
      c = static_cast<char>('!' + (state >> 58));
    }
    large.leak("host", "lost", 1, 1, large.stack({large.frame(noise.c_str())}));
  }
  const File wide = file_of(large.run, 1);
  EXPECT_GT(wide.bytes.size(), std::size_t{16} << 20);
  EXPECT_LT(wide.largest_part, std::size_t{16} << 20);
}

}  // namespace
}  // namespace cistern::formats
