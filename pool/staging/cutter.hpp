// A box cut into pieces that fit a chunk, in order.
#pragma once
#include <algorithm>

#include "pool/staging/box.hpp"

namespace cistern::staging {

// A part of a box that is a box itself: whole slices, whole rows of one slice, or a part of one row.
struct Piece {
  std::size_t byte, row, slice;  // where it begins
  Box box;

  Side of(const Side& whole) const {
    return {whole.base + slice * whole.slice_pitch + row * whole.row_pitch + byte, whole.row_pitch, whole.slice_pitch};
  }
};

// From its first to behind its last byte.
inline std::size_t span_bytes(const Side& side, const Box& box) {
  return (box.slices - 1) * side.slice_pitch + (box.rows - 1) * side.row_pitch + box.row_bytes;
}

// The pieces of a box in order, each as large as is allowed. A box without bytes has none.
class Cutter {
 public:
  explicit Cutter(const Box& whole) : whole_(whole), left_(whole.bytes()) {}

  std::size_t left() const { return left_; }

  // `bytes_max` above 0. Called only while something is left.
  Piece next(std::size_t bytes_max) {
    Piece piece{byte_, row_, slice_, {}};
    if (byte_ || whole_.row_bytes > bytes_max) {
      piece.box = {std::min(whole_.row_bytes - byte_, bytes_max)};
      byte_ += piece.box.row_bytes;
      if (byte_ == whole_.row_bytes) byte_ = 0, ++row_;
    } else if (row_ || whole_.rows > bytes_max / whole_.row_bytes) {
      piece.box = {whole_.row_bytes, std::min(whole_.rows - row_, bytes_max / whole_.row_bytes)};
      row_ += piece.box.rows;
    } else {
      const std::size_t slice_bytes = whole_.row_bytes * whole_.rows;
      piece.box = {whole_.row_bytes, whole_.rows, std::min(whole_.slices - slice_, bytes_max / slice_bytes)};
      slice_ += piece.box.slices;
    }
    if (row_ == whole_.rows) row_ = 0, ++slice_;
    left_ -= piece.box.bytes();
    return piece;
  }
  // The next piece is this one again.
  void back_to(const Piece& piece) {
    byte_ = piece.byte;
    row_ = piece.row;
    slice_ = piece.slice;
    left_ = whole_.row_bytes * (whole_.rows * (whole_.slices - slice_) - row_) - byte_;
  }

 private:
  Box whole_;
  std::size_t left_;
  std::size_t byte_ = 0, row_ = 0, slice_ = 0;
};

}  // namespace cistern::staging
