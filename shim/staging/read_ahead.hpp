// How mapped files that are not in the page cache are read for copies to a device: in the order of the file, by one
// thread. Several threads that read pieces of it together are slower on a disk, and much slower on a network.
//
// The system reads ahead of a reader that goes in order. That is too little where each read takes long, and asking for
// more costs some systems half of their speed. So it is measured: 32 MiB are read without asking; if that was slower
// than 1 GB/s, 64 MiB are read with it; the faster way stays for 8 GiB.
//
// A copy asks for a window of bytes that moves along with it. It is 8 MiB at first and doubles while bytes are missing,
// up to 128 MiB or a quarter of what control groups and machine have left. The window ends with the copy unless this
// copy began where the one before ended; then it reaches beyond, to the end of the mapping.
#pragma once
#include <cstddef>
#include <cstdint>

#include "pool/base/lock.hpp"
#include "shim/process/headroom.hpp"

namespace cistern {

// The pages of a mapped file.
class FilePages {
 public:
  virtual bool is_cached(const char* page) const = 0;
  virtual void read_ahead(const char* first, const char* end) const;
  virtual std::uint64_t now_ns() const;

 protected:
  ~FilePages() = default;
};

// Pages of which nothing but their address is known.
class PagesByAddress : public FilePages {
 public:
  bool is_cached(const char* page) const override;
};

class ReadAhead {
 public:
  static constexpr std::size_t kStepBytes = std::size_t{2} << 20;
  static constexpr std::size_t kFirstWindowBytes = std::size_t{8} << 20, kWindowBytesMost = std::size_t{128} << 20;
  static constexpr std::uint64_t kBytesWithout = std::uint64_t{32} << 20, kBytesWith = std::uint64_t{64} << 20,
                                 kBytesBetweenLooks = std::uint64_t{8} << 30;
  static constexpr double kFastBytesPerNs = 1, kGain = 1.1;

  // The copy of a mapped file's bytes. Only the copying thread uses it.
  class Copy {
   public:
    Copy() = default;  // the copy of other memory
    // Before the bytes are read. False: some are not in the page cache, so one thread has to read them in order.
    bool reads(const char* first, const char* end, const FilePages& pages);

   private:
    friend class ReadAhead;
    void ask(const char* read_to, const FilePages& pages);

    ReadAhead* of_ = nullptr;
    const char *end_ = nullptr, *last_ = nullptr, *asked_to_ = nullptr;
    std::size_t window_ = kFirstWindowBytes;
    bool asks_ = false;
    // Pieces whose time is known, which were missing in the page cache or were asked for.
    std::uint64_t missing_bytes_ = 0, missing_ns_ = 0, began_ns_ = 0, begun_bytes_ = 0;
  };

  // `mapping_end` may be out of date: what is mapped there then is read ahead.
  Copy begin(const char* first, std::size_t bytes, const char* mapping_end);
  void end(const Copy& copy);

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  // Copies in a row, by the last of them.
  struct Row {
    const char *end, *asked_to;
    std::size_t window;
  };
  enum class Look : unsigned char { without, with, over };

  std::size_t window_most();
  void measured(std::uint64_t bytes, std::uint64_t ns);

  Lock lock_;
  Row rows_[8]{};
  unsigned next_ = 0;  // overwritten next
  Look look_ = Look::without;
  bool asks_ = false;  // where no look is made
  double rate_without_ = 0;
  std::uint64_t look_bytes_ = 0, look_ns_ = 0;  // in this look
  Headroom headroom_;
};

}  // namespace cistern
