// See history.hpp.
#include "stats/history.hpp"

#include <algorithm>
#include <cmath>

namespace cistern {

const char* name_of(TrendKind kind) {
  constexpr const char* kNames[] = {"unknown", "one-off", "constant", "growing"};
  return kNames[static_cast<std::size_t>(kind)];
}

void History::close_intervals(std::uint64_t now_ms) {
  while ((now_ms - start_ms_) / width_ms_ > closed_) {
    if (closed_ == kPoints) {
      for (std::size_t i = 0; i < kPoints / 2; ++i) {
        least_[i] = std::min(least_[2 * i], least_[2 * i + 1]);
        last_[i] = last_[2 * i + 1];
      }
      closed_ /= 2;
      width_ms_ *= 2;
      continue;
    }
    least_[closed_] = least_now_;
    last_[closed_++] = last_now_;
    least_now_ = last_now_;
  }
}

void History::begin(std::uint64_t born_ms) {
  if (width_ms_) return;
  start_ms_ = last_born_ms_ = born_ms;
  width_ms_ = 1;
}

void History::note(std::uint64_t now_ms, std::uint64_t live_bytes, std::uint64_t newest_ms) {
  if (histories_ended_ms.load(std::memory_order_relaxed)) return;
  begin(now_ms);
  now_ms = std::max(now_ms, start_ms_);
  if (!last_now_ && !closed_) least_now_ = last_now_ = live_bytes;  // the first: nothing is known of before
  close_intervals(now_ms);
  least_now_ = std::min(least_now_, live_bytes);
  last_now_ = live_bytes;
  last_born_ms_ = std::max(last_born_ms_, newest_ms);
}

namespace {

std::uint64_t or_when_they_ended(std::uint64_t now_ms) {
  const std::uint64_t ended_ms = histories_ended_ms.load(std::memory_order_relaxed);
  return ended_ms ? std::min(now_ms, ended_ms) : now_ms;
}

}  // namespace

Levels History::levels(std::uint64_t now_ms) const {
  Levels levels{};
  if (!width_ms_) return levels;
  now_ms = or_when_they_ended(now_ms);
  History copy = *this;
  copy.close_intervals(std::max(now_ms, start_ms_));
  levels.start_s = static_cast<double>(start_ms_) / 1e3;
  levels.interval_s = copy.width_ms_ / 1e3;
  levels.least.assign(copy.least_, copy.least_ + copy.closed_);
  levels.last.assign(copy.last_, copy.last_ + copy.closed_);
  levels.least.push_back(copy.least_now_);
  levels.last.push_back(copy.last_now_);
  return levels;
}

Trend History::trend(std::uint64_t now_ms) const {
  // Up to 10 in 100 series of levels that only change at random grow by their line in 0.15 to 0.6 s. In 1 s one in 100
  // does if blocks live for less than a tenth of it, and 2 to 5 in 100 do if they live for half of it.
  constexpr std::uint64_t kShortestMs = 1000, kPartOfOneOff = 16;
  now_ms = or_when_they_ended(now_ms);
  if (!width_ms_ || now_ms < start_ms_ + kShortestMs) return {};
  if (last_born_ms_ - start_ms_ <= (now_ms - start_ms_) / kPartOfOneOff) return {TrendKind::one_off};
  return trend_of(levels(now_ms));
}

namespace {

struct Line {
  double slope, fit;  // fit: the part of the variance that it explains
};

Line line_through(const Vector<double>& levels) {
  const auto count = static_cast<double>(levels.size());
  double mean = 0;
  for (const double level : levels) mean += level / count;
  double x_x = 0, x_y = 0, y_y = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double x = static_cast<double>(i) - (count - 1) / 2, y = levels[i] - mean;
    x_x += x * x, x_y += x * y, y_y += y * y;
  }
  return {x_y / x_x, y_y > 0 ? x_y * x_y / (x_x * y_y) : 0};
}

// The floors: what was never given back later. They only rise.
Vector<double> floors_of(const Vector<double>& least) {
  Vector<double> floors = least;
  for (std::size_t i = floors.size() - 1; i-- > 0;) floors[i] = std::min(floors[i], floors[i + 1]);
  return floors;
}

// Where the growth begins that goes on to the end; nothing where it does not. It goes on while no pause is more than
// about twice as long as its pauses mostly are.
std::optional<std::size_t> begin_of_growth(const Vector<double>& floors) {
  constexpr std::size_t kRisesMin = 3;
  Vector<std::size_t> rises, gaps;
  for (std::size_t i = 1; i < floors.size(); ++i)
    if (floors[i] > floors[i - 1]) rises.push_back(i);
  if (rises.size() < kRisesMin) return {};
  for (std::size_t i = 1; i < rises.size(); ++i) gaps.push_back(rises[i] - rises[i - 1]);
  Vector<std::size_t> sorted = gaps;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t longest = 2 * sorted[sorted.size() / 2] + 1;
  if (floors.size() - 1 - rises.back() > longest) return {};
  std::size_t first = rises.size() - 1;
  while (first > 0 && gaps[first - 1] <= longest) --first;
  if (rises.size() - first < kRisesMin) return {};
  return rises[first] - 1;
}

// The fit that one in a thousand random series of so many levels has.
double least_fit(std::size_t levels) { return levels <= 5 ? 0.97 : levels == 6 ? 0.93 : 0.88; }

}  // namespace

namespace {

constexpr std::size_t kLevelsMin = 8;

// A fall by half at the last levels, and only there, is the end of the program. It may take some time until all is
// freed.
Vector<double> without_the_end(const Vector<std::uint64_t>& levels) {
  constexpr double kNothing = 0.05;  // of the highest
  Vector<double> least(levels.begin(), levels.end());
  const double top = *std::max_element(least.begin(), least.end());
  while (least.size() > kLevelsMin && least.back() < kNothing * top) least.pop_back();
  for (std::size_t last = 2; last > 0; --last) {
    const auto end = least.end() - static_cast<std::ptrdiff_t>(last);
    const auto fell = [end](double level) { return level < *(end - 1); };
    if (least.back() < top / 2 && std::all_of(end, least.end(), fell)) least.erase(end, least.end());
  }
  return least;
}

}  // namespace

bool rose_beside(const Levels& all, const Trend& growth) {
  constexpr std::size_t kPart = 4;
  constexpr double kRiseMin = 0.5 * (kPart - 1) / kPart;  // between the middles of the first part and the last
  if (all.least.size() < kLevelsMin) return false;
  const Vector<double> least = without_the_end(all.least);
  const double begin = std::max(0.0, (growth.since_s - all.start_s) / all.interval_s);
  if (begin >= static_cast<double>(least.size())) return false;
  const auto first = static_cast<std::size_t>(begin), part = std::max<std::size_t>((least.size() - first) / kPart, 1);
  double rise = 0;
  for (std::size_t i = 0; i < part; ++i) rise += least[least.size() - part + i] - least[first + i];
  return rise / static_cast<double>(part) >= kRiseMin * growth.bytes;
}

bool rose_at_last(const Levels& levels) {
  constexpr double kRiseMin = 1.15, kErrorsMin = 3.5;
  const auto& least = levels.least;
  const std::size_t sixth = std::max<std::size_t>(least.size() / 6, 1), begin = least.size() - 2 * sixth;
  if (least.size() < 2 * sixth) return false;
  double before = 0, last = 0, changes = 0;  // changes: squares of those from level to level
  for (std::size_t i = begin; i < least.size(); ++i) {
    const auto level = static_cast<double>(least[i]);
    (i < begin + sixth ? before : last) += level;
    const double change = i > begin ? level - static_cast<double>(least[i - 1]) : 0;
    changes += change * change;
  }
  // The standard error of a difference of two sums of as many levels, were they drawn at random: a slope adds little to
  // it, as it is small from level to level.
  const double variance = changes / 2 / static_cast<double>(2 * sixth - 1);
  const double error = std::sqrt(2 * static_cast<double>(sixth) * variance);
  return last > before * kRiseMin && last - before > kErrorsMin * error;
}

Trend trend_of(const Levels& levels) {
  constexpr std::size_t kLineMin = 5;
  constexpr double kGrowthMin = 0.02;  // of the level
  if (levels.least.size() < kLevelsMin) return {};
  const Vector<double> least = without_the_end(levels.least);
  const Vector<double> floors = floors_of(least);
  const std::optional<std::size_t> begin = begin_of_growth(floors);
  if (!begin || least.size() - *begin < std::max(least.size() / 3, kLineMin)) return {TrendKind::constant};
  const auto part = [](const Vector<double>& of, std::size_t first, std::size_t end) {
    return Vector<double>(of.begin() + static_cast<std::ptrdiff_t>(first),
                          of.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const Vector<double> line = part(least, *begin, least.size());
  const bool is_straight = line_through(line).fit >= least_fit(line.size());
  if (!is_straight || floors.back() - floors[*begin] < kGrowthMin * floors.back()) return {TrendKind::constant};
  // From the first rise to the last: steps are whole then.
  const auto last = static_cast<std::size_t>(std::find(floors.begin(), floors.end(), floors.back()) - floors.begin());
  return {TrendKind::growing, line_through(part(floors, *begin + 1, last + 1)).slope / levels.interval_s,
          levels.start_s + static_cast<double>(*begin) * levels.interval_s, floors.back() - floors[*begin]};
}

}  // namespace cistern
