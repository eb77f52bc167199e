// The account of copies between one kind of pageable memory and a device: how many went through the ring, why the
// others did not, and the speed of either way.
//
// Room: copies through bounce buffers, as far as every kind of device does the same: accounts, threads, the host side.
// May include: pool/base, pool, pool/heap, pool/staging, stats, shim/process.
#pragma once
#include <atomic>

#include "pool/staging/calibration.hpp"
#include "pool/staging/transfer.hpp"
#include "shim/staging/source_kind.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

enum class StagingMode : std::uint8_t { automatic, on, off };
StagingMode staging_mode();  // CISTERN_STAGING

// Smaller copies are staged only of mapped files, and where the device reads the host's page tables: it may copy those
// page by page.
constexpr std::uint64_t kStagedBytesMin = std::uint64_t{128} << 10;

enum class Unstaged : std::uint8_t {
#define UNSTAGED(name, text) name,
#include "shim/staging/unstaged.def"
#undef UNSTAGED
  count
};

Unstaged unstaged_of(staging::Rest rest);

// The account of one device, direction and kind of host memory.
class CopyAccount {
 public:
  staging::Calibration calibration;

  void count(Unstaged reason, std::uint64_t bytes) {
    unstaged_[static_cast<int>(reason)].fetch_add(1, std::memory_order_relaxed);
    passed_on_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_staged(std::uint64_t bytes) {
    staged_copies_.fetch_add(1, std::memory_order_relaxed);
    staged_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Nothing where there was no copy.
  void add_to(Snapshot& snapshot, const char* kind, int device, bool to_device, SourceKind source);
  void forget();

 private:
  std::atomic<std::uint64_t> staged_copies_{0}, staged_bytes_{0}, passed_on_bytes_{0};
  std::atomic<std::uint64_t> unstaged_[static_cast<int>(Unstaged::count)]{};
};

// The accounts of all devices of a kind; each is made at its first copy.
class CopyAccounts {
 public:
  static constexpr int kDevices = 64;

  CopyAccount& of(int device, bool to_device, SourceKind source);
  void add_to(Snapshot& snapshot, const char* kind);

  void before_fork();
  void after_fork();
  void forget_in_child();

 private:
  template <class Visit>
  void for_each(Visit visit) {
    for (int device = 0; device < kDevices; ++device)
      for (const bool to_device : {true, false})
        for (int source = 0; source < kSourceKinds; ++source)
          if (CopyAccount* account = accounts_[device][to_device][source].load(std::memory_order_acquire))
            visit(device, to_device, static_cast<SourceKind>(source), *account);
  }

  Lock lock_;
  std::atomic<CopyAccount*> accounts_[kDevices][2][kSourceKinds]{};
};

}  // namespace cistern
