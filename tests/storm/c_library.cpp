// Actor: calls of the C library that allocate inside, that hold its own locks while they do, or that bring libraries
// and threads in and out.
#include <dirent.h>
#include <dlfcn.h>
#include <langinfo.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <string>

#include "tests/storm/lines.hpp"
#include "tests/storm/storm.hpp"

namespace storm {
namespace {

FILE* shared_lines;  // all threads read it, so its lock is often held across the allocation of a line

bool make_shared_lines() {
  shared_lines = make_lines(4, 100000);
  return shared_lines && fflush(shared_lines) == 0;
}

void look_up_user() {
  char room[4096];
  passwd entry, *found = nullptr;
  if (getpwnam_r("root", &entry, room, sizeof room, &found) || !found) fail("there is no user root");
}

void look_up_host(Random& random) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = random.below(2) ? AI_NUMERICHOST : 0;
  const Exclusion no_child_with_threads(Exclusion::under_lock);
  if (getaddrinfo(hints.ai_flags ? "127.0.0.1" : "localhost", "80", &hints, &found) == 0) freeaddrinfo(found);
}

void load_and_unload() {
  const std::string path = std::string(programs_folder()) + "/libstorm_plugin.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  if (!library) fail("dlopen: %s", dlerror());
  const auto block_of = reinterpret_cast<void* (*)(int)>(dlsym(library, "plugin_block"));
  if (!block_of) fail("dlsym: %s", dlerror());
  free(block_of(7));
  {
    const Exclusion no_child_to_exit(Exclusion::under_lock);
    if (dlclose(library)) fail("dlclose: %s", dlerror());
  }
  if (!dlopen("/nonexistent/library.so", RTLD_NOW)) dlerror();
}

void* short_life(void* seed) {
  Random random(reinterpret_cast<uintptr_t>(seed));
  churn_blocks(random, 20);
  return malloc(100);
}

void start_thread(Random& random) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, short_life, reinterpret_cast<void*>(random.next()))) fail("no thread");
  void* block = nullptr;
  pthread_join(thread, &block);
  free(block);
}

void change_locale(Random& random) {
  const locale_t made = newlocale(LC_ALL_MASK, random.below(2) ? "C.UTF-8" : "C", nullptr);
  if (!made) return;
  const locale_t before = uselocale(made);
  if (!nl_langinfo(CODESET)) fail("a locale without a character set");
  uselocale(before);
  freelocale(made);
}

void look_around() {
  free(realpath("/proc/self/exe", nullptr));
  if (DIR* const folder = opendir("/etc")) {
    while (readdir(folder)) {
    }
    closedir(folder);
  }
  regex_t expression;
  if (regcomp(&expression, "(a|b)+[x-z]*", REG_EXTENDED) == 0) {
    if (regexec(&expression, "abxyz", 0, nullptr, 0)) fail("an expression does not match");
    regfree(&expression);
  }
}

void turn(Random& random) {
  switch (random.below(10)) {
    case 0:
      return read_lines(shared_lines);
    case 1:
      fflush(nullptr);
      return;
    case 2:
      return look_up_user();
    case 3:
      return look_up_host(random);
    case 4:
      return load_and_unload();
    case 5:
      return start_thread(random);
    case 6:
      return change_locale(random);
    case 7:
      return look_around();
    default:
      return use_stdio(random);
  }
}

// One thread alone: setlocale is not for several.
void set_locale(Random& random) {
  setlocale(LC_ALL, random.below(2) ? "C.UTF-8" : "C");
  usleep(500);
}

const Registered c_library({"c-library", 3, turn, make_shared_lines, nullptr});
const Registered locale({"locale", 1, set_locale, nullptr, nullptr});

}  // namespace

void use_stdio(Random& random) {
  FILE* const stream = tmpfile();
  if (!stream) return;
  for (uint32_t i = 0; i < 1 + random.below(4); ++i) fprintf(stream, "%*d\n", static_cast<int>(random.below(30000)), 1);
  read_lines(stream);
  fclose(stream);
  char* text = nullptr;
  if (asprintf(&text, "%*d", static_cast<int>(random.below(5000)), 1) > 0) free(text);
  if (random.below(4) == 0) fflush(nullptr);
}

}  // namespace storm
