// Records by handle; and that none ends under the lock of its shard, for its members may call a driver.
#include "pool/base/handle_table.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

// Its end asks the table, as code that a driver calls back may.
struct Ends {
  int value = 0;
  std::size_t* ends = nullptr;
  Ends() = default;
  Ends(int number, std::size_t* counted) : value(number), ends(counted) {}
  Ends(Ends&& other) noexcept : value(other.value), ends(std::exchange(other.ends, nullptr)) {}
  Ends& operator=(Ends&& other) noexcept {
    end();
    value = other.value;
    ends = std::exchange(other.ends, nullptr);
    return *this;
  }
  ~Ends() { end(); }

 private:
  void end() {
    if (!ends) return;
    EXPECT_EQ(locks_held, 0);
    ++*std::exchange(ends, nullptr);
  }
};

const void* handle(std::uintptr_t number) { return reinterpret_cast<const void*>(number * 64); }

TEST(HandleTable, FindsPutsAndTakes) {
  HandleTable<int> table;
  table.put(handle(1), 10);
  EXPECT_EQ(table.with(handle(1), [](const int* value) { return value ? *value : 0; }), 10);
  EXPECT_TRUE(table.with(handle(2), [](const int* value) { return value == nullptr; }));
  int taken = 0;
  EXPECT_FALSE(table.take_if(handle(1), taken, [](int value) { return value != 10; }));
  EXPECT_TRUE(table.take_if(handle(1), taken, [](int value) { return value == 10; }));
  EXPECT_EQ(taken, 10);
  EXPECT_FALSE(table.take_if(handle(1), taken, [](int) { return true; }));
}

TEST(HandleTable, ARecordWhoseHandleComesAgainEndsOutsideOfTheLock) {
  std::size_t ends = 0;
  HandleTable<Ends> table;
  table.put(handle(1), {1, &ends});
  EXPECT_EQ(ends, 0u);
  table.put(handle(1), {2, &ends});
  EXPECT_EQ(ends, 1u);
  EXPECT_EQ(table.with(handle(1), [](const Ends* record) { return record->value; }), 2);
}

TEST(HandleTable, WhatATakenRecordReplacesEndsOutsideOfTheLock) {
  std::size_t ends = 0;
  HandleTable<Ends> table;
  table.put(handle(1), {1, &ends});
  {
    Ends out(2, &ends);
    EXPECT_TRUE(table.take_if(handle(1), out, [](const Ends&) { return true; }));
    EXPECT_EQ(ends, 1u);
    EXPECT_EQ(out.value, 1);
  }
  EXPECT_EQ(ends, 2u);
}

}  // namespace
}  // namespace cistern
