// Something of each call site: made when asked for, visited up to the last that was.
#include "stats/site_table.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

struct Row {
  int value;
  char rest[500];
};

std::vector<SiteId> written(SiteTable<Row>& table, SiteId& visited) {
  std::vector<SiteId> sites;
  visited = 0;
  table.for_each([&](SiteId site, const Row& row) {
    ++visited;
    if (row.value) sites.push_back(site);
  });
  return sites;
}

TEST(SiteTable, IsVisitedUpToTheLastSiteThatWasAskedFor) {
  static constinit SiteTable<Row> table;
  SiteId visited = 0;
  EXPECT_TRUE(written(table, visited).empty());
  EXPECT_EQ(visited, 0u);
  EXPECT_EQ(table.of(0), nullptr);
  EXPECT_EQ(table.of(SiteId{1} << 20), nullptr);
  for (const SiteId site : {SiteId{300}, SiteId{7}}) table.of(site)->value = 1;
  EXPECT_EQ(written(table, visited), (std::vector<SiteId>{7, 300}));
  EXPECT_EQ(visited, 128u + 45u);  // two pages of 128 have memory, the last as far as 300
  EXPECT_EQ(table.of((SiteId{1} << 20) - 1)->value, 0);
  table.clear();
  EXPECT_TRUE(written(table, visited).empty());
  EXPECT_EQ(table.of(300)->value, 0);
}

}  // namespace
}  // namespace cistern
