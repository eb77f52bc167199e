// Runs a fuzzer without libFuzzer: each file of the corpus, then mutations of them drawn from a seed.
// argv: folder, number of mutations, seed. What is running when it crashes is printed, to become a file of the corpus.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kBytesMax = 2000;

Bytes running;
std::string running_name;

void run(const Bytes& input, const std::string& name) {
  running = input;
  running_name = name;
  LLVMFuzzerTestOneInput(running.data(), running.size());
}

// The process ends anyway: that printing is not allowed in a handler costs nothing.
void say_what_ran(int signal) {
  std::fprintf(stderr, "replay: signal %d in %s, input:", signal, running_name.c_str());
  for (const std::uint8_t byte : running) std::fprintf(stderr, " %02x", byte);
  std::fputc('\n', stderr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::map<std::string, Bytes> read_corpus(const char* folder) {
  std::map<std::string, Bytes> corpus;  // in the order of names, so that a seed means the same everywhere
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus[entry.path().filename()] = Bytes(std::istreambuf_iterator<char>(file), {});
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> corpus, unsigned seed) : corpus_(std::move(corpus)), random_(seed) {}

  Bytes next() {
    Bytes bytes = one();
    for (unsigned changes = 1 + below(8); changes > 0; --changes) change(bytes);
    if (bytes.size() > kBytesMax) bytes.resize(kBytesMax);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end ? random_() % end : 0; }
  const Bytes& one() { return corpus_[below(corpus_.size())]; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }

  void change(Bytes& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 24) + 1);
    switch (below(5)) {
      case 0:
        if (at < bytes.size()) *place = byte();
        return;
      case 1:
        bytes.insert(place, byte());
        return;
      case 2:
        bytes.erase(place, place + static_cast<std::ptrdiff_t>(length));
        return;
      case 3: {
        const Bytes again(place, place + static_cast<std::ptrdiff_t>(length));
        bytes.insert(bytes.end(), again.begin(), again.end());
        return;
      }
      case 4: {
        const Bytes& from = one();
        const std::size_t begin = below(from.size());
        bytes.insert(place, from.begin() + static_cast<std::ptrdiff_t>(begin),
                     from.begin() + static_cast<std::ptrdiff_t>(begin + below(from.size() - begin)));
        return;
      }
    }
  }

  std::vector<Bytes> corpus_;
  std::mt19937 random_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s FOLDER MUTATIONS SEED\n", arguments[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) std::signal(signal, say_what_ran);
  const unsigned long mutations = std::strtoul(arguments[2], nullptr, 10);
  const auto seed = static_cast<unsigned>(std::strtoul(arguments[3], nullptr, 10));
  std::vector<Bytes> corpus;
  for (const auto& [name, bytes] : read_corpus(arguments[1])) {
    run(bytes, name);
    corpus.push_back(bytes);
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "replay: no files in %s\n", arguments[1]);
    return 1;
  }
  std::printf("replay: %zu files, then %lu mutations, seed %u\n", corpus.size(), mutations, seed);
  std::fflush(stdout);
  Mutator mutator(std::move(corpus), seed);
  for (unsigned long i = 0; i < mutations; ++i)
    run(mutator.next(), "mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
  return 0;
}
