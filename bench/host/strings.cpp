// Everyday C++: text is split into strings, counted in hashed and ordered maps, sorted, and joined again.
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kWords = 40'000, kVocabulary = 8000;
constexpr unsigned kTexts = 12;

std::string random_word(Random& random) {
  std::string word(random.between(2, random.chance(20) ? 60 : 12), ' ');
  for (char& letter : word) letter = static_cast<char>('a' + random.below(26));
  return word;
}

std::string random_text(Random& random, const std::vector<std::string>& vocabulary) {
  std::string text;
  for (std::size_t words = 0; words < kWords; ++words) {
    text += vocabulary[random.below(vocabulary.size())];
    text += ' ';
  }
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0, end; (end = text.find(' ', begin)) != std::string::npos; begin = end + 1)
    words.push_back(text.substr(begin, end - begin));
  return words;
}

void process(const std::string& text) {
  std::vector<std::string> words = split(text);
  std::unordered_map<std::string, std::size_t> counts;
  std::map<std::string, std::vector<std::size_t>> places;
  for (std::size_t at = 0; at < words.size(); ++at) {
    ++counts[words[at]];
    places[words[at]].push_back(at);
  }
  require(counts.size() == places.size(), "the maps differ");

  // The text again, from the ordered map.
  std::vector<std::string> again(words.size());
  for (const auto& [word, at] : places) {
    require(counts[word] == at.size(), "a count changed");
    for (std::size_t place : at) again[place] = word + " ";
  }
  std::string joined;
  for (const std::string& word : again) joined += word;
  require(joined == text, "the text changed");

  std::sort(words.begin(), words.end());
  require(std::is_sorted(words.begin(), words.end()), "not sorted");
  words.erase(std::unique(words.begin(), words.end()), words.end());
  require(words.size() == counts.size(), "the words changed");
}

void run(const Setting& setting) {
  Random random(setting.seed);
  std::vector<std::string> vocabulary(kVocabulary);
  for (std::string& word : vocabulary) word = random_word(random);
  for (unsigned text = 0; text < kTexts; ++text) process(random_text(random, vocabulary));
}

const Workload strings("strings", run);

}  // namespace
}  // namespace host_bench
