// The addresses that programs reserve for virtual memory: cuMemAddressReserve and cuMemAddressFree. They are cut from
// one window that holds nothing else, so an address alone tells whether it is virtual.
#pragma once
#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {

struct Reservation {
  uintptr_t begin = 0;
  size_t bytes = 0;  // 0: there is no reservation
};

// The reservation that contains the address.
Reservation reservation_of(Locked&, uintptr_t address);

// Whether the address is in the window, reserved or not. It takes no lock, because a signal handler asks too.
bool is_virtual_address(uintptr_t address);

}  // namespace simcuda
