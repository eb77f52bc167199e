// A key-value server's heap, as Redis: chained hash table that doubles, strings with headers in sizes from 10 bytes to
// 16 KiB, strings appended to in place, lists of small nodes; set, get, append, push, pop and delete at random.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kKeys = 60'000;
constexpr unsigned kCommands = 3'000'000;

struct Text {
  std::uint32_t bytes, room;
  char at[];
};

struct Node {
  Node* next;
  Text* text;
};

struct Entry {
  Entry* next;
  Text* value;
  Node* list;
  std::size_t key;
  char name[];
};

// Every text is full of the key's byte, so that contents prove themselves whatever happened before.
char byte_of(std::size_t key) { return static_cast<char>('a' + key % 26); }

Text* make_text(std::size_t bytes, std::size_t key) {
  auto* text = static_cast<Text*>(std::malloc(sizeof(Text) + bytes + 1));
  require(text != nullptr, "malloc returned null");
  text->bytes = text->room = static_cast<std::uint32_t>(bytes);
  std::memset(text->at, byte_of(key), bytes);
  text->at[bytes] = 0;
  return text;
}

void check_text(const Text* text, std::size_t key) {
  require(text->at[0] == byte_of(key) && text->at[text->bytes - 1] == byte_of(key) && text->at[text->bytes] == 0,
          "a text changed");
}

Text* append(Text* text, std::size_t more, std::size_t key) {
  const std::size_t bytes = text->bytes + more;
  if (bytes > text->room) {
    text = static_cast<Text*>(std::realloc(text, sizeof(Text) + 2 * bytes + 1));
    require(text != nullptr, "realloc returned null");
    text->room = static_cast<std::uint32_t>(2 * bytes);
  }
  std::memset(text->at + text->bytes, byte_of(key), more);
  text->at[bytes] = 0;
  text->bytes = static_cast<std::uint32_t>(bytes);
  return text;
}

std::size_t text_size(Random& random) {
  const std::size_t kind = random.below(100);
  return kind < 60 ? random.between(10, 60) : kind < 97 ? random.between(60, 600) : random.between(600, 16'000);
}

class Table {
 public:
  Table() : buckets_(static_cast<Entry**>(std::calloc(count_, sizeof(Entry*)))) {}
  ~Table() {
    for (std::size_t bucket = 0; bucket < count_; ++bucket)
      while (buckets_[bucket] != nullptr) erase(buckets_[bucket]->key);
    std::free(buckets_);
  }
  Entry** find(std::size_t key) {
    Entry** at = &buckets_[hash(key)];
    while (*at != nullptr && (*at)->key != key) at = &(*at)->next;
    return at;
  }
  Entry& find_or_make(std::size_t key) {
    if (Entry* entry = *find(key)) return *entry;
    if (++entries_ > count_) grow();
    const std::size_t name_bytes = 8 + key % 24;
    auto* entry = static_cast<Entry*>(std::malloc(sizeof(Entry) + name_bytes));
    require(entry != nullptr, "malloc returned null");
    *entry = {.next = buckets_[hash(key)], .value = nullptr, .list = nullptr, .key = key};
    std::memset(entry->name, byte_of(key), name_bytes);
    return *(buckets_[hash(key)] = entry);
  }
  void erase(std::size_t key) {
    Entry** at = find(key);
    Entry* entry = *at;
    if (entry == nullptr) return;
    *at = entry->next;
    --entries_;
    require(entry->name[0] == byte_of(key), "a name changed");
    std::free(entry->value);
    while (entry->list != nullptr) pop(*entry);
    std::free(entry);
  }
  static void push(Entry& entry, Text* text) {
    auto* node = static_cast<Node*>(std::malloc(sizeof(Node)));
    require(node != nullptr, "malloc returned null");
    *node = {entry.list, text};
    entry.list = node;
  }
  static void pop(Entry& entry) {
    Node* node = entry.list;
    if (node == nullptr) return;
    check_text(node->text, entry.key);
    entry.list = node->next;
    std::free(node->text);
    std::free(node);
  }

 private:
  std::size_t hash(std::size_t key) const { return key * 0x9e3779b97f4a7c15 >> 20 & (count_ - 1); }
  void grow() {
    const std::size_t before = std::exchange(count_, 2 * count_);
    Entry** old = std::exchange(buckets_, static_cast<Entry**>(std::calloc(count_, sizeof(Entry*))));
    require(buckets_ != nullptr, "calloc returned null");
    for (std::size_t bucket = 0; bucket < before; ++bucket)
      for (Entry* entry = old[bucket]; entry != nullptr;) {
        Entry*& head = buckets_[hash(entry->key)];
        Entry* next = std::exchange(entry->next, head);
        head = std::exchange(entry, next);
      }
    std::free(old);
  }
  std::size_t count_ = 16, entries_ = 0;
  Entry** buckets_;
};

void run(const Setting& setting) {
  Random random(setting.seed);
  Table table;
  for (unsigned done = 0; done < kCommands; ++done) {
    const std::size_t key = random.below(kKeys), command = random.below(100);
    if (command < 35) {
      Entry& entry = table.find_or_make(key);
      std::free(std::exchange(entry.value, make_text(text_size(random), key)));
    } else if (command < 60) {
      if (const Entry* entry = *table.find(key); entry != nullptr && entry->value != nullptr)
        check_text(entry->value, key);
    } else if (command < 70) {
      if (Entry* entry = *table.find(key); entry != nullptr && entry->value != nullptr && entry->value->bytes < 16'000)
        entry->value = append(entry->value, random.between(1, 100), key);
    } else if (command < 85) {
      Table::push(table.find_or_make(key), make_text(random.between(1, 64), key));
    } else if (command < 95) {
      if (Entry* entry = *table.find(key)) Table::pop(*entry);
    } else {
      table.erase(key);
    }
  }
}

const Workload key_value("key_value", run);

}  // namespace
}  // namespace host_bench
