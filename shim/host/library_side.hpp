// What the C interface asks of this kind's memory: tables that shim/host/library fills.
#pragma once

namespace cistern::library {
struct KindMemory;
}
namespace cistern::host {
extern const library::KindMemory pool_memory;
}
