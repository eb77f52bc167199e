// See page.hpp.
#include "stats/formats/page.hpp"

#include <algorithm>

#include "stats/formats/gzip.hpp"
#include "stats/formats/hints.hpp"
#include "stats/formats/page_data.hpp"
#include "stats/formats/page_template.hpp"

namespace cistern::formats {
namespace {

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() / 3 * 4 + 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

// As text between tags, of any bytes.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>') {
      safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : "&gt;";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

std::string cut(std::string_view text) {
  constexpr std::size_t kBytes = 100;
  const auto continues = [&](std::size_t at) { return (text[at] & 0xC0) == 0x80; };  // a character of UTF-8
  std::size_t bytes = std::min(text.size(), kBytes);
  while (bytes && bytes < text.size() && continues(bytes)) --bytes;
  return std::string(text.substr(0, bytes)) + (bytes < text.size() ? "..." : "");
}

std::string title_of(const Run& run) {
  if (run.reports.size() != 1) return std::to_string(run.reports.size()) + " processes";
  return cut(run.reports.front().cistern.command);
}

std::string filled(std::string_view title, std::string_view data) {
  std::string html = kPageTemplate;
  for (const auto& [mark, value] :
       {std::pair<std::string, std::string>("@DATA@", base64(gzip(data))), {"@TITLE@", escaped(title)}})
    html.replace(html.find(mark), mark.size(), value);
  return html;
}

// The page with as many rows as fit, of at most `rows`: the sizes of pages tell how many do; a few rounds find it.
template <class PageWith>
std::string fitted(std::size_t rows, std::size_t bytes_max, PageWith&& page_with) {
  for (;;) {
    std::string html = page_with(rows);
    if (html.size() <= bytes_max) return html;
    if (!rows)
      throw PageTooLarge("the page would have " + std::to_string(html.size()) + " bytes, and may have " +
                         std::to_string(bytes_max));
    const double fitting = 0.9 * static_cast<double>(bytes_max) / static_cast<double>(html.size());
    rows = rows > 10 ? static_cast<std::size_t>(static_cast<double>(rows) * fitting) : 0;
  }
}

// One page's worth of the run: its first reports and rows, as they are ranked.
class Choice {
 public:
  explicit Choice(const Run& run) : run_(run), title_(title_of(run)), hints_(hints(run)) {
    for (const Report& report : run.reports) reports_.push_back(&report);
    std::ranges::stable_sort(reports_, std::greater(), live_bytes);
  }

  std::size_t reports() const { return reports_.size(); }
  std::size_t rows() const { return rows_.size(); }

  bool has_moments() const {
    return moments_.sites && std::ranges::any_of(reports_, [](const Report* of) { return of->recorded.has_value(); });
  }
  void lower_moments() { moments_.lower(); }
  // Leaves out the reports behind the first.
  void keep_reports(std::size_t count) {
    reports_.resize(count);
    rank_rows();
  }

  std::string page_with(std::size_t row_count) const {
    Rows kept;
    for (std::size_t i = 0; i < row_count; ++i) kept.insert(rows_[i].address);
    std::vector<const Report*> in_order = reports_;
    std::ranges::sort(in_order);  // they are elements of one vector
    return filled(title_, page_data(run_, in_order, kept, moments_, hints_));
  }

 private:
  struct Ranked {
    const void* address;
    bool of_gpu;
    Count bytes;
  };
  static Count live_bytes(const Report* report) {
    Count sum = 0;
    for (const auto& [name, kind] : report->kinds) sum += kind.live_bytes;
    return sum;
  }
  // The verdict is about memory of the GPU: a small block of it tells more than a large one of the host.
  void rank_rows() {
    rows_.clear();
    for (const Report* report : reports_)
      visit_rows(*report, [&](const char*, const auto& row) {
        rows_.push_back({&row, row.kind != "host", bytes_of(row)});
      });
    std::ranges::stable_sort(rows_, std::greater(), [](const Ranked& row) { return std::pair(row.of_gpu, row.bytes); });
  }

  const Run& run_;
  std::string title_;
  std::vector<std::string> hints_;
  std::vector<const Report*> reports_;  // the one with most live memory first
  std::vector<Ranked> rows_;            // of these reports
  MomentLimits moments_;
};

}  // namespace

// Half of the room beside the template is for what is no row of a call site, at most.
std::string page(const Run& run, PageLimits limits) {
  Choice choice(run);
  std::size_t reports = choice.reports();
  choice.keep_reports(reports);
  const std::size_t without_sites_max = (limits.bytes_max + sizeof kPageTemplate) / 2;
  while (choice.has_moments() && choice.page_with(0).size() > without_sites_max) choice.lower_moments();
  while (reports > 1 && choice.page_with(0).size() > without_sites_max) choice.keep_reports(reports /= 2);
  return fitted(std::min(choice.rows(), limits.rows_max), limits.bytes_max,
                [&](std::size_t rows) { return choice.page_with(rows); });
}

std::string page(const Comparison& of, PageLimits limits) {
  const std::string title = cut(of.before.name) + " -> " + cut(of.after.name);
  return fitted(std::min(of.sites.size(), limits.rows_max), limits.bytes_max,
                [&](std::size_t sites) { return filled(title, page_data(of, sites)); });
}

}  // namespace cistern::formats
