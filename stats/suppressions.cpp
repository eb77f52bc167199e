// See suppressions.hpp.
#include "stats/suppressions.hpp"

#include <algorithm>

#include "pool/base/path.hpp"
#include "stats/unwind/modules.hpp"

namespace cistern {
namespace {

struct BuiltIn {
  std::string_view pattern;
  bool is_module;
};
constexpr BuiltIn kBuiltIn[] = {
#define SUPPRESSED_MODULE(name) {name, true},
#define SUPPRESSED_FUNCTION(pattern) {pattern, false},
#include "stats/suppressions.def"
};

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool matches_any_frame(std::string_view pattern, const Vector<FrameFigures>& frames) {
  return std::any_of(frames.begin(), frames.end(), [pattern](const FrameFigures& frame) {
    return pattern_matches(pattern, frame.function) || pattern_matches(pattern, frame.file) ||
           pattern_matches(pattern, frame.module);
  });
}

// The first behind those that allocate for whoever calls them.
bool is_made_by(std::string_view module, const Vector<FrameFigures>& frames) {
  for (const FrameFigures& frame : frames) {
    const std::string_view name = basename_of(frame.module);
    if (allocates_for_callers(name)) continue;
    return name.starts_with(module);
  }
  return false;
}

}  // namespace

bool pattern_matches(std::string_view pattern, std::string_view text) {
  if (text.empty()) return false;
  bool anchored = pattern.starts_with('^');
  if (anchored) pattern.remove_prefix(1);
  const bool to_the_end = pattern.ends_with('$');
  if (to_the_end) pattern.remove_suffix(1);
  while (true) {
    const std::size_t star = pattern.find('*');
    const std::string_view part = pattern.substr(0, star);
    const bool is_last = star == pattern.npos;
    // Parts in between are found as early as they can be, the last one, where it has to end the text, at its end.
    if (is_last && to_the_end) return anchored ? text == part : text.ends_with(part);
    const std::size_t at = text.find(part);
    if (at == text.npos || (anchored && at != 0)) return false;
    if (is_last) return true;
    text.remove_prefix(at + part.size());
    pattern.remove_prefix(star + 1);
    anchored = false;
  }
}

void Suppressions::read(std::string_view file) {
  constexpr std::string_view kLeak = "leak:";
  for (unsigned number = 1; !file.empty(); ++number) {
    const std::size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = trimmed(file.substr(0, end));
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with(kLeak) && line.size() > kLeak.size()) {
      user_.push_back(String(trimmed(line.substr(kLeak.size()))));
    } else {
      no_rules_.push_back(number);
    }
  }
}

Vector<String> Suppressions::patterns_of_anything() const {
  constexpr std::string_view kUnheardOf = "\x01";
  Vector<String> patterns;
  for (const String& pattern : user_)
    if (pattern_matches(pattern, kUnheardOf)) patterns.push_back(pattern);
  return patterns;
}

void Suppressions::mark(Snapshot& snapshot) const {
  Vector<SuppressionFigures>& rules = snapshot.suppressions;
  for (const String& pattern : user_) rules.push_back({"leak:" + pattern, false});
  for (const BuiltIn& rule : kBuiltIn) rules.push_back({"leak:" + String(rule.pattern), true});
  const auto names = [this](std::size_t rule, const Vector<FrameFigures>& frames) {
    if (rule < user_.size()) return matches_any_frame(user_[rule], frames);
    const BuiltIn& built_in = kBuiltIn[rule - user_.size()];
    return built_in.is_module ? is_made_by(built_in.pattern, frames) : matches_any_frame(built_in.pattern, frames);
  };
  const auto mark = [&](LeakFigures& leak) {
    for (std::size_t i = 0; i < rules.size() && !leak.suppressed; ++i)
      if (names(i, leak.frames)) leak.suppressed = true, leak.rule = i;
  };
  for (LeakFigures& leak : snapshot.leaks) mark(leak);
  for (LeakFigures& site : snapshot.host_sites) mark(site);
  for (GrowingSite& site : snapshot.growing)
    for (std::size_t i = 0; i < rules.size(); ++i) site.suppressed = site.suppressed || names(i, site.frames);
}

void count_suppressed(Snapshot& snapshot) {
  Vector<SuppressionFigures>& rules = snapshot.suppressions;
  for (const Vector<LeakFigures>* const leaks : {&snapshot.leaks, &snapshot.host_sites})
    for (const LeakFigures& leak : *leaks)
      if (leak.suppressed)
        ++rules[leak.rule].sites, rules[leak.rule].blocks += leak.blocks, rules[leak.rule].bytes += leak.bytes;
  std::erase_if(rules, [](const SuppressionFigures& rule) { return rule.built_in && !rule.sites; });
}

}  // namespace cistern
