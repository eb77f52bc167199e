// The newer side of a unified buffer, and its newer parts (the table in cistern/unified.h): the parts to copy before a
// side may be used, and the state after that. Nothing here knows of memory or drivers.
#pragma once
#include "cistern/unified.h"
#include "pool/base/parts.hpp"

namespace cistern::library {

constexpr cistern_side other(cistern_side side) {
  return side == CISTERN_HOST_SIDE ? CISTERN_DEVICE_SIDE : CISTERN_HOST_SIDE;
}
constexpr cistern_state only(cistern_side side) {
  return side == CISTERN_HOST_SIDE ? CISTERN_HOST_ONLY : CISTERN_DEVICE_ONLY;
}
constexpr cistern_state dirty(cistern_side side) {
  return side == CISTERN_HOST_SIDE ? CISTERN_HOST_DIRTY : CISTERN_DEVICE_DIRTY;
}

class Sides {
 public:
  Sides() = default;
  explicit Sides(std::size_t bytes, cistern_state state = CISTERN_UNINITIALISED) : bytes_(bytes), state_(state) {}

  cistern_state state() const { return state_; }
  const Parts& dirty_parts() const { return dirty_; }

  // The parts that this access needs and the side lacks. The access is allowed: see check().
  Parts lacks(cistern_side side, cistern_access access, Range part) const {
    Parts newer = newer_than(side);
    if (access == CISTERN_WRITE) return newer;  // the other side must not be dirty any more
    return access == CISTERN_READ ? newer.within(part) : newer.without(part);
  }
  cistern_status check(cistern_access access) const {
    return state_ == CISTERN_UNINITIALISED && access == CISTERN_READ ? CISTERN_EMPTY : CISTERN_OK;
  }

  // The side has been given `part`, which it lacked.
  void given(cistern_side side, Range part) {
    Parts newer = newer_than(side);
    newer.remove(part);
    state_ = newer.empty() ? CISTERN_SYNCHRONISED : dirty(other(side));
    dirty_ = newer;
  }
  // The side lacks no part that the access needs, and is about to be written in `part`.
  void begin_write(cistern_side side, Range part) {
    if (state_ == only(side)) return;
    if (state_ == CISTERN_UNINITIALISED) {
      // On the device it may be in parts: the host's side is nothing yet.
      state_ = side == CISTERN_HOST_SIDE ? CISTERN_HOST_ONLY : CISTERN_DEVICE_DIRTY;
      dirty_ = side == CISTERN_HOST_SIDE ? Parts() : all();
      return;
    }
    if (state_ != dirty(side)) dirty_.clear();  // the other side's dirty parts are all overwritten
    state_ = dirty(side);
    dirty_.add(part);
  }

  cistern_status mark(cistern_side side, Range part) {
    if (state_ == CISTERN_UNINITIALISED) return CISTERN_EMPTY;
    if (!newer_than(side).empty()) return CISTERN_CONFLICT;
    begin_write(side, part);
    return CISTERN_OK;
  }
  // The side's memory may go: the other has all data.
  cistern_status drop(cistern_side side) {
    if (state_ == CISTERN_UNINITIALISED) return CISTERN_EMPTY;
    if (state_ == only(side) || state_ == dirty(side)) return CISTERN_CONFLICT;
    become(only(other(side)));
    return CISTERN_OK;
  }
  void become(cistern_state state) {
    state_ = state;
    dirty_.clear();
  }

 private:
  Parts all() const { return Parts({0, bytes_}); }
  Parts newer_than(cistern_side side) const {
    if (state_ == only(other(side))) return all();
    return state_ == dirty(other(side)) ? dirty_ : Parts();
  }

  std::size_t bytes_ = 0;
  cistern_state state_ = CISTERN_UNINITIALISED;
  Parts dirty_;  // in the dirty states, and never empty there
};

}  // namespace cistern::library
