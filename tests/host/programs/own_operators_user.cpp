// Says how often the replaced operators of the library beside it (own_operators.cpp) were called.
#include <cstdio>
#include <new>

extern int own_news, own_deletes;

int main() {
  const int news_before = own_news, deletes_before = own_deletes;
  for (int i = 0; i < 10; ++i) ::operator delete(::operator new(static_cast<std::size_t>(i) + 1));
  std::printf("%d new, %d delete\n", own_news - news_before, own_deletes - deletes_before);
  return 0;
}
