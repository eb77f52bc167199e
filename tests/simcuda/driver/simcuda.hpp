// A simulated CUDA driver, libcuda.so.1, over host memory: a CUDA for machines without a GPU, to test on.
//
// What it is. Every entry point of the driver's interface is exported (entry_points.def). Those that matter to a
// program that allocates, copies, launches, captures and shares are simulated in the files beside this one; any other
// prints "simcuda: cuXyz is not simulated" once and answers CUDA_ERROR_NOT_SUPPORTED. Device memory is host memory at
// addresses of its own, so copies and kernels really move bytes; a kernel's work is a host function that the program
// gives through tests/simcuda/simcuda.h. Streams run on worker threads, so what the documentation leaves unordered
// really runs late, most of all with the setting stream_delay_us. Freed memory is poisoned and soon given again.
//
// How far to trust it. Each rule that it follows is a comment with a tag: [documented] in NVIDIA's driver API reference
// or programming guide, [measured] on a real driver by the GPU check, or [cited] from the report of a project that met
// it. The others are [assumed]: the GPU check replays them.
//
// How it is built. One lock (Driver::lock, driver.hpp) guards all bookkeeping and is never held while a stream's work
// runs or is waited for. An entry point is one function: SIMCUDA_CALL (call.hpp) counts it and answers early where a
// setting, the process's state, a sticky error or a stream capture says so; then it does its work.
// - Every call: settings, call, thread_state, proc_address, refused.
// - Work and its order: device, context, green_context, stream, stream_values, event, host_function, copy, link,
// memset, kernel, module.
// - Access of work to memory, and its faults: device_work, touched.
// - Memory: address_window, allocation, storage, memory, own_memory, pinned, managed, pool, array, pointer, ipc.
// - Virtual memory: address_space, physical_memory, shareable_handles, virtual_memory.
// - Work that is recorded first: capture, graph, graph_nodes, graph_memory.
#pragma once
#define __CUDA_API_VERSION_INTERNAL  // declares every version and every per-thread-stream variant, none renamed
#include <cuda.h>
