// What the C interface asks of this kind's memory: tables that shim/opencl/library fills.
#pragma once

namespace cistern::library {
struct KindMemory;
}
namespace cistern::opencl {
extern const library::KindMemory buffer_memory;
}
