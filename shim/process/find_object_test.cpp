// find_object beside the C library's own _dl_find_object, where that has one: the same answers for every object, while
// others open and close objects, and in forked children.
#include "shim/process/find_object.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "shim/process/process.hpp"

namespace cistern {
namespace {

using FindObject = int (*)(void*, dl_find_object*);

FindObject real_find_object() { return reinterpret_cast<FindObject>(dlsym(RTLD_DEFAULT, "_dl_find_object")); }

constexpr const char* kPlugin = "libnuma.so.1";

// Addresses that lie in objects, at their edges, and nowhere.
std::vector<std::uintptr_t> addresses() {
  std::vector<std::uintptr_t> all{0, 1, 4096, UINTPTR_MAX, reinterpret_cast<std::uintptr_t>(&all)};
  const auto note = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& all = *static_cast<std::vector<std::uintptr_t>*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info->dlpi_phdr[i];
      if (header.p_type != PT_LOAD) continue;
      const std::uintptr_t start = info->dlpi_addr + header.p_vaddr;
      for (const std::uintptr_t address : {start, start + header.p_memsz / 2, start + header.p_memsz - 1})
        all.push_back(address);
    }
    return 0;
  };
  dl_iterate_phdr(note, &all);
  return all;
}

// How many addresses have another answer than the C library's, or none where that has one.
int differences() {
  const FindObject real = real_find_object();
  int different = 0;
  for (const std::uintptr_t address : addresses()) {
    dl_find_object ours{}, theirs{};
    const int found = find_object(reinterpret_cast<void*>(address), ours);
    const int expected = real(reinterpret_cast<void*>(address), &theirs);
    different +=
        found != expected ||
        (found == 0 && (ours.dlfo_map_start != theirs.dlfo_map_start || ours.dlfo_map_end != theirs.dlfo_map_end ||
                        ours.dlfo_link_map != theirs.dlfo_link_map || ours.dlfo_eh_frame != theirs.dlfo_eh_frame));
  }
  return different;
}

#define NEEDS_AN_ORACLE() \
  if (!real_find_object()) GTEST_SKIP() << "this C library has no _dl_find_object to compare with"

TEST(FindObject, AnswersAsTheCLibraryDoes) {
  NEEDS_AN_ORACLE();
  EXPECT_GT(addresses().size(), 20u);
  EXPECT_EQ(differences(), 0);
}

TEST(FindObject, SeesWhatIsOpenedAndClosed) {
  NEEDS_AN_ORACLE();
  for (int round = 0; round < 3; ++round) {
    void* const plugin = dlopen(kPlugin, RTLD_NOW);
    ASSERT_NE(plugin, nullptr) << dlerror();
    void* const inside = dlsym(plugin, "numa_available");
    dl_find_object found{};
    EXPECT_EQ(find_object(inside, found), 0);
    EXPECT_EQ(found.dlfo_link_map, plugin);
    EXPECT_EQ(differences(), 0);
    dlclose(plugin);
    EXPECT_EQ(find_object(inside, found), -1) << "it is still known after it was closed";
    EXPECT_EQ(differences(), 0);
  }
}

TEST(FindObject, AnswersBesideThreadsThatOpenAndClose) {
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::thread opens([&] {
    for (int i = 0; i < 300; ++i) {
      void* const plugin = dlopen(kPlugin, RTLD_NOW);
      dl_find_object found{};
      if (!plugin || find_object(dlsym(plugin, "numa_available"), found) != 0 || found.dlfo_link_map != plugin) ++wrong;
      if (plugin) dlclose(plugin);
    }
    over = true;
  });
  std::vector<std::thread> ask;
  for (int i = 0; i < 2; ++i)
    ask.emplace_back([&] {
      while (!over) {
        dl_find_object found{};
        if (find_object(reinterpret_cast<void*>(&find_object), found) != 0) ++wrong;
        if (find_object(&wrong, found) == 0) ++wrong;  // on a stack
      }
    });
  opens.join();
  for (std::thread& thread : ask) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A callback of the program's holds the loader's lock and waits for a thread that looks up what was there at the start.
TEST(FindObject, TakesNoLockForWhatWasThereAtTheStart) {
  dl_find_object warm{};
  ASSERT_EQ(find_object(reinterpret_cast<void*>(&dl_iterate_phdr), warm), 0);
  const auto wait = [](dl_phdr_info*, std::size_t, void*) {
    std::thread asks([] {
      dl_find_object found{};
      EXPECT_EQ(find_object(reinterpret_cast<void*>(&dl_iterate_phdr), found), 0);
    });
    asks.join();
    return 1;
  };
  EXPECT_EQ(dl_iterate_phdr(wait, nullptr), 1);
}

TEST(FindObject, ReadsTheListAsItLiesInAChildForkedBesideThreads) {
  NEEDS_AN_ORACLE();
  void* const plugin = dlopen(kPlugin, RTLD_NOW);
  ASSERT_NE(plugin, nullptr) << dlerror();
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) std::this_thread::yield();
  });
  const pid_t child = fork();
  if (child == 0) {
    begin_anew_in_child();
    _exit(forked_beside_threads() ? std::min(differences(), 99) : 100);
  }
  over = true;
  other.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  dlclose(plugin);
}

}  // namespace
}  // namespace cistern
