// The bytes of one copy: a box that lies in two places, each with pitches of its own, cut into shares that several
// threads may copy in any order.
#pragma once
#include <algorithm>
#include <cstddef>

#include "pool/staging/guarded_copy.hpp"
#include "pool/staging/streaming_copy.hpp"

namespace cistern::staging {

struct Box {
  std::size_t row_bytes, rows = 1, slices = 1;
  std::size_t bytes() const { return row_bytes * rows * slices; }
};

// One of the two places. A pitch leads from the start of a row or slice to that of the next; a single one has any
// pitch.
struct Side {
  char* base;
  std::size_t row_pitch = 0, slice_pitch = 0;
};
struct ConstSide {
  const char* base;
  std::size_t row_pitch = 0, slice_pitch = 0;
};

// Shares of about the same size: some rows, or a part of a long one.
class Shares {
 public:
  constexpr Shares() = default;
  Shares(const Side& to, const ConstSide& from, const Box& box, std::size_t bytes_each,
         Guarded guarded = Guarded::neither)
      : to_(to), from_(from), box_(box), guarded_(guarded) {
    join_rows();
    join_rows();
    rows_ = box_.rows * box_.slices;
    if (bytes() == 0) return;
    part_bytes_ = std::min(bytes_each, box_.row_bytes);
    parts_of_row_ = (box_.row_bytes - 1) / part_bytes_ + 1;
    rows_each_ = std::max<std::size_t>(1, bytes_each / box_.row_bytes);
    count_ = parts_of_row_ > 1 ? rows_ * parts_of_row_ : (rows_ - 1) / rows_each_ + 1;
  }

  std::size_t count() const { return count_; }
  std::size_t bytes() const { return box_.row_bytes * rows_; }
  // Without a gap on either side.
  std::size_t longest_run_bytes() const { return box_.row_bytes; }
  Guarded guarded() const { return guarded_; }

  // False: the guarded side is not all there.
  bool copy(std::size_t share, Stores stores) const {
    if (parts_of_row_ > 1) return copy_part(share / parts_of_row_, share % parts_of_row_ * part_bytes_, stores);
    return copy_rows(share * rows_each_, std::min(rows_each_, rows_ - share * rows_each_), stores);
  }
  bool copy_all(Stores stores) const { return bytes() == 0 || copy_rows(0, rows_, stores); }

 private:
  // Rows without gaps on both sides are one, and the slices are rows.
  void join_rows() {
    if (box_.rows != 1 && (to_.row_pitch != box_.row_bytes || from_.row_pitch != box_.row_bytes)) return;
    box_ = {box_.row_bytes * box_.rows, box_.slices, 1};
    to_.row_pitch = to_.slice_pitch;
    from_.row_pitch = from_.slice_pitch;
  }

  // Rows of one slice.
  bool copy_run(std::size_t slice, std::size_t row, std::size_t rows, std::size_t at, std::size_t row_bytes,
                Stores stores) const {
    char* const to = to_.base + slice * to_.slice_pitch + row * to_.row_pitch + at;
    const char* const from = from_.base + slice * from_.slice_pitch + row * from_.row_pitch + at;
    if (guarded_ != Guarded::neither)
      return guarded_copy({to, from, to_.row_pitch, from_.row_pitch, row_bytes, rows}, guarded_);
    for (std::size_t i = 0; i < rows; ++i)
      streaming_copy(to + i * to_.row_pitch, from + i * from_.row_pitch, row_bytes, stores);
    return true;
  }
  bool copy_part(std::size_t row, std::size_t at, Stores stores) const {
    return copy_run(row / box_.rows, row % box_.rows, 1, at, std::min(part_bytes_, box_.row_bytes - at), stores);
  }
  bool copy_rows(std::size_t first, std::size_t count, Stores stores) const {
    std::size_t slice = first / box_.rows, row = first % box_.rows;
    for (std::size_t rows; count != 0; count -= rows, row = 0, ++slice) {
      rows = std::min(count, box_.rows - row);
      if (!copy_run(slice, row, rows, 0, box_.row_bytes, stores)) return false;
    }
    return true;
  }

  Side to_{};
  ConstSide from_{};
  Box box_{0};
  Guarded guarded_ = Guarded::neither;
  std::size_t rows_ = 0, count_ = 0;
  std::size_t part_bytes_ = 0, parts_of_row_ = 0, rows_each_ = 0;
};

}  // namespace cistern::staging
