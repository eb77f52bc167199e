// See page_data.hpp.
#include "stats/formats/page_data.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace cistern::formats {
namespace {

// Rows of one list that are not in the page.
struct Others {
  std::string list, kind, leak_class;
  bool by_library = false, suppressed = false;
  Count rows = 0, blocks = 0, bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, Others& of) {
  visit("list", of.list), visit("kind", of.kind), visit("class", of.leak_class), visit("by_library", of.by_library);
  visit("suppressed", of.suppressed), visit("rows", of.rows), visit("blocks", of.blocks), visit("bytes", of.bytes);
}

Others others_of(const char* list, const LiveRow& row) {
  const bool by_library = !row.owner.empty() && !row.program;
  return {list, row.kind, row.leak_class, by_library, row.suppressed, 1, row.blocks, row.bytes};
}
Others others_of(const char* list, const UseRow& row) {
  return {list, row.kind, "", false, false, 1, row.peak_blocks, row.peak_bytes};
}
Others others_of(const char* list, const CopyRow& row) {
  return {list, row.kind, "", false, false, 1, row.count, row.bytes};
}

// Sites of one kind that are not in the page.
struct OtherSites {
  std::string kind;
  Count rows = 0;
  SiteFigures before, after;
};
template <class Visitor>
void visit_fields(Visitor& visit, OtherSites& of) {
  visit("kind", of.kind), visit("rows", of.rows), visit("before", of.before), visit("after", of.after);
}

void add(SiteFigures& sum, const SiteFigures& of) {
  sum.blocks += of.blocks, sum.bytes += of.bytes, sum.lost_blocks += of.lost_blocks, sum.lost_bytes += of.lost_bytes;
  sum.peak_blocks += of.peak_blocks, sum.peak_bytes += of.peak_bytes;
}

std::vector<OtherSites> others_of(std::span<const ComparedSite> sites) {
  std::vector<OtherSites> all;
  for (const ComparedSite& site : sites) {
    auto sum = std::ranges::find(all, site.kind, &OtherSites::kind);
    if (sum == all.end()) sum = all.insert(sum, {site.kind, 0, {}, {}});
    ++sum->rows, add(sum->before, site.before), add(sum->after, site.after);
  }
  return all;
}

// --- A recording
struct MomentOnPage {
  Seconds at_s = 0;
  std::string peak_of;
  std::vector<Count> uses;
};
template <class Visitor>
void visit_fields(Visitor& visit, MomentOnPage& of) {
  visit("at_s", of.at_s), visit("peak_of", of.peak_of), visit("uses", of.uses);
}
struct RecordingOnPage {
  Count events = 0, file_bytes = 0, others = 0;
  Named<std::string> missing;
  std::vector<MomentSite> sites;
  std::vector<MomentOnPage> moments;
};
template <class Visitor>
void visit_fields(Visitor& visit, RecordingOnPage& of) {
  visit("events", of.events), visit("file_bytes", of.file_bytes), visit("others", of.others);
  visit("missing", of.missing), visit("sites", of.sites), visit("moments", of.moments);
}

// The numbers that the page's sites have there: the first `count` of them by what they held at most, memory of the GPU
// first, and then one for the rest of each kind.
class SitesOnPage {
 public:
  SitesOnPage(const Recorded& of, std::size_t count, RecordingOnPage& page) : numbers_(of.sites.size()) {
    std::vector<Count> most(of.sites.size());
    for (const Moment& moment : of.moments)
      for (const MomentUse& use : moment.uses) most[use.site] = std::max(most[use.site], use.bytes);
    std::vector<std::size_t> ranked;
    for (std::size_t i = 0; i < of.sites.size(); ++i) ranked.push_back(i);
    std::ranges::stable_sort(ranked, std::greater(), [&](std::size_t i) {
      return std::tuple(!of.sites[i].others, of.sites[i].kind != "host", most[i]);
    });
    std::map<std::string, Count> others;
    for (const std::size_t i : ranked) {
      const MomentSite& site = of.sites[i];
      if (!site.others && page.sites.size() < count) {
        numbers_[i] = page.sites.size();
        page.sites.push_back(site);
        continue;
      }
      const auto [rest, is_new] = others.try_emplace(site.kind, page.sites.size());
      if (is_new) page.sites.push_back({site.kind, "", 0, true});
      numbers_[i] = rest->second;
      page.others += !site.others;
    }
  }
  Count operator[](std::uint32_t site) const { return numbers_[site]; }

 private:
  std::vector<Count> numbers_;
};

RecordingOnPage on_page(const Recorded& of, MomentLimits limits) {
  RecordingOnPage page{of.events, of.file_bytes, 0, of.missing, {}, {}};
  if (!limits.sites) return page;
  const SitesOnPage numbers(of, limits.sites, page);
  std::size_t interval = 0;
  for (const Moment& moment : of.moments) {
    const bool is_last = &moment == &of.moments.back();
    if (moment.peak_of.empty() && !is_last && ++interval % limits.step) continue;
    std::map<Count, std::pair<Count, Count>> sums;  // by site
    for (const MomentUse& use : moment.uses) {
      auto& [blocks, bytes] = sums[numbers[use.site]];
      blocks += use.blocks, bytes += use.bytes;
    }
    MomentOnPage& shown = page.moments.emplace_back(MomentOnPage{moment.at_s, moment.peak_of, {}});
    for (const auto& [site, sum] : sums) shown.uses.insert(shown.uses.end(), {site, sum.first, sum.second});
  }
  return page;
}

// The stacks and frames of the page, in the order in which they were first used.
class Stacks {
 public:
  Stacks(const std::vector<Stack>& stacks, const std::vector<Frame>& frames)
      : all_stacks_(stacks), all_frames_(frames) {}
  std::size_t id_of(StackId stack) {
    const auto [at, is_new] = stack_ids_.try_emplace(stack, stacks_.size());
    if (!is_new) return at->second;
    auto& frames = stacks_.emplace_back();
    for (const FrameId frame : all_stacks_[stack]) {
      const auto [id, is_new_frame] = frame_ids_.try_emplace(frame, frames_.size());
      if (is_new_frame) frames_.push_back(all_frames_[frame]);
      frames.push_back(id->second);
    }
    return at->second;
  }
  const std::vector<std::vector<Count>>& stacks() const { return stacks_; }
  const std::vector<Frame>& frames() const { return frames_; }

 private:
  const std::vector<Stack>& all_stacks_;
  const std::vector<Frame>& all_frames_;
  std::unordered_map<StackId, std::size_t> stack_ids_;
  std::unordered_map<FrameId, std::size_t> frame_ids_;
  std::vector<std::vector<Count>> stacks_;
  std::vector<Frame> frames_;
};

class Writer {
 public:
  Writer(std::string& text, Stacks& stacks, const Rows& kept, MomentLimits moments)
      : text_(text), stacks_(stacks), kept_(kept), moments_(moments) {}

  // One object's members, which visit_fields hands over one by one.
  class Members {
   public:
    explicit Members(Writer& writer, std::string_view skipped = {}) : writer_(writer), skipped_(skipped) {
      writer_.text_ += '{';
    }
    ~Members() { writer_.text_ += '}'; }
    template <class Value>
    void operator()(std::string_view name, const Value& value) {
      if (is_left_out(value) || name == skipped_) return;
      begin(name);
      writer_.write(value);
    }
    void stack(std::string_view name, StackId id) {
      begin(name);
      writer_.write(Count(writer_.stacks_.id_of(id)));
    }

   private:
    void begin(std::string_view name) {
      if (!empty_) writer_.text_ += ',';
      empty_ = false;
      writer_.write(name);
      writer_.text_ += ':';
    }
    template <class Value>
    static bool is_left_out(const Value& value) {
      if constexpr (requires { value.has_value(); }) return !value.has_value();
      if constexpr (requires { value.empty(); }) return value.empty();
      if constexpr (std::is_same_v<Value, bool>) return !value;
      return false;
    }
    Writer& writer_;
    std::string_view skipped_;
    bool empty_ = true;
  };

  void write(std::string_view value) {
    constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    for (const char c : value) {
      if (static_cast<unsigned char>(c) < 0x20) {
        text_ += "\\u00", text_ += kHex[c >> 4], text_ += kHex[c & 15];
      } else {
        if (c == '"' || c == '\\') text_ += '\\';
        text_ += c;
      }
    }
    text_ += '"';
  }
  void write(const std::string& value) { write(std::string_view(value)); }
  void write(Count value) { write_number(value); }
  void write(double value) { write_number(value); }
  void write(bool value) { text_ += value ? "true" : "false"; }
  template <class Value>
  void write(const std::optional<Value>& value) {
    write(*value);
  }
  template <class Value>
  void write(const std::vector<Value>& values) {
    write(std::span<const Value>(values));
  }
  template <class Value>
  void write(std::span<const Value> values) {
    text_ += '[';
    const std::size_t begin = text_.size();
    for (const Value& value : values) {
      if (!is_kept(value)) continue;
      if (text_.size() > begin) text_ += ',';
      write(value);
    }
    text_ += ']';
  }
  template <class Value>
  void write(const Named<Value>& values) {
    Members members(*this);
    for (const auto& [name, value] : values) members(name, value);
  }
  template <class Object>
  requires std::is_class_v<Object>
  void write(const Object& object) {
    Members members(*this);
    visit_fields(members, const_cast<Object&>(object));  // read only: Members takes values as const
  }
  void write(const Report* report) {
    Members members(*this, "text");  // the page says it with its own words
    visit_fields(members, const_cast<Report&>(*report));
    members("others", others_of_report(*report));
    if (report->recorded) members("recording", on_page(*report->recorded, moments_));
  }

 private:
  template <class Number>
  void write_number(Number number) {
    char digits[32];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  template <class Value>
  bool is_kept(const Value& value) const {
    if constexpr (requires { bytes_of(value); }) return kept_.contains(&value);
    return true;
  }
  std::vector<Others> others_of_report(const Report& report) const {
    std::map<std::tuple<std::string, std::string, std::string, bool, bool>, Others> sums;
    visit_rows(report, [&](const char* list, const auto& row) {
      if (kept_.contains(&row)) return;
      const Others one = others_of(list, row);
      Others& sum = sums[{one.list, one.kind, one.leak_class, one.by_library, one.suppressed}];
      const Others before = std::exchange(sum, one);
      sum.rows += before.rows, sum.blocks += before.blocks, sum.bytes += before.bytes;
    });
    std::vector<Others> all;
    for (auto& [key, sum] : sums) all.push_back(std::move(sum));
    return all;
  }

  std::string& text_;
  Stacks& stacks_;
  const Rows& kept_;
  const MomentLimits moments_;
};

}  // namespace

std::string page_data(const Run& run, const std::vector<const Report*>& reports, const Rows& kept, MomentLimits moments,
                      const std::vector<std::string>& hints) {
  std::string text;
  Stacks stacks(run.stacks, run.frames);
  Writer writer(text, stacks, kept, moments);
  {
    Writer::Members page(writer);
    page("version", std::string(CISTERN_VERSION));
    page("processes", Count(run.reports.size()));
    page("hints", hints);
    page("reports", reports);
    page("stacks", stacks.stacks());
    page("frames", stacks.frames());
  }
  return text;
}

std::string page_data(const Comparison& of, std::size_t site_count) {
  std::string text;
  Stacks stacks(of.stacks, of.frames);
  const Rows none;
  Writer writer(text, stacks, none, {});
  {
    const std::span<const ComparedSite> sites(of.sites);
    Writer::Members page(writer);
    page("version", std::string(CISTERN_VERSION));
    page("before", of.before), page("after", of.after);
    page("kinds", of.kinds);
    page("growth", of.growth);
    page("sites", sites.first(site_count));
    page("others", others_of(sites.subspan(site_count)));
    page("stacks", stacks.stacks());
    page("frames", stacks.frames());
  }
  return text;
}

}  // namespace cistern::formats
