// The host's side of a copy through bounce buffers, for every kind of device.
#pragma once
#include "pool/staging/transfer.hpp"
#include "pool/staging/turns.hpp"
#include "shim/staging/read_ahead.hpp"

namespace cistern {

class HostLane : public staging::Lane, private PagesByAddress {
 public:
  // `turn`: the long one that the copy has, where it has one.
  HostLane(bool to_device, ReadAhead::Copy& ahead, staging::Turn* turn)
      : to_device_(to_device), ahead_(ahead), turn_(turn) {}

  bool may_touch(const staging::Side& side, const staging::Box& box) final;
  bool copy(const staging::Side& to, const staging::Side& from, const staging::Box& box) final;
  void pause(unsigned looks) final;

 protected:
  ~HostLane() = default;

 private:
  staging::Guarded guarded(const staging::Side& programs, const staging::Box& box) const;

  const bool to_device_;
  ReadAhead::Copy& ahead_;
  staging::Turn* const turn_;
};

}  // namespace cistern
