// Tests of protobuf.hpp: the examples of the page on encoding.
#include "stats/formats/protobuf.hpp"

#include <gtest/gtest.h>

namespace cistern::formats {
namespace {

using namespace std::string_literals;

// The examples of the page on encoding, and the ends of the numbers.
TEST(Protobuf, FieldsAreWrittenAsThePageHasThem) {
  Message message;
  message.number(1, 150);
  EXPECT_EQ(message.bytes(), "\x08\x96\x01"s);
  Message text;
  text.text(2, "testing");
  EXPECT_EQ(text.bytes(), "\x12\x07testing"s);
  Message outer;
  outer.message(3, message);
  EXPECT_EQ(outer.bytes(), "\x1a\x03\x08\x96\x01"s);
  Message packed;
  const Count numbers[] = {3, 270, 86942};
  packed.packed(6, numbers);
  EXPECT_EQ(packed.bytes(), "\x32\x06\x03\x8e\x02\x9e\xa7\x05"s);
  Message ends;
  ends.number(16, 0);
  ends.number(1, ~Count{0});
  EXPECT_EQ(ends.bytes(), "\x80\x01\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
}

}  // namespace
}  // namespace cistern::formats
