// The C interface's questions about this kind's memory: tables that shim/cuda/library fills.
#pragma once

namespace cistern::library {
struct KindMemory;
}
namespace cistern::cuda {
extern const library::KindMemory device_memory, pinned_memory, managed_memory;
}
