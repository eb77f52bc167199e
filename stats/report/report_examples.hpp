// Hand-made snapshots for the tests of the reports: one for each kind of process that a report may have to speak of.
#pragma once
#include <cstdint>

#include "stats/frameworks.hpp"
#include "stats/snapshot.hpp"

namespace cistern::examples {

inline constexpr std::uint64_t kMiB = 1024 * 1024;

inline Snapshot empty_snapshot() {
  Snapshot snapshot{};
  snapshot.version = "1.2.3";
  snapshot.pid = 4242;
  snapshot.command = "./train --epochs 3";
  snapshot.wall_s = 12.3456789;
  snapshot.moment = "exit";
  snapshot.sites = "gpu:all,host:off";
  snapshot.tables_bytes = 256 * 1024;
  return snapshot;
}

inline KindFigures host_figures() {
  KindFigures host{};
  host.name = "host";
  host.is_host = true;
  host.allocations = 1234567;
  host.frees = 1234000;
  host.live_blocks = 567;
  host.live_bytes = 3 * kMiB / 2;
  host.peak_bytes = 9 * kMiB;
  host.peak_at_s = 1.5;
  return host;
}

inline KindFigures opencl_figures(std::uint64_t live_blocks = 3, std::uint64_t live_bytes = 48 * kMiB) {
  KindFigures opencl{};
  opencl.name = "opencl";
  opencl.pooled_kind = true;
  opencl.allocations = 1000;
  opencl.frees = 1000 - live_blocks;
  opencl.pool_hits = 960;
  opencl.pool_misses = 30;
  opencl.driver_allocs = 40;
  opencl.driver_frees = 25;
  opencl.driver_queries = 3;
  opencl.live_blocks = live_blocks;
  opencl.live_bytes = live_bytes;
  opencl.peak_bytes = 96 * kMiB;
  opencl.peak_at_s = 10.25;
  opencl.pooled_blocks = 12;
  opencl.pooled_bytes = 128 * kMiB;
  opencl.unpooled.push_back({"host pointer", 7});
  opencl.unpooled.push_back({"sub-buffer", 3});
  opencl.kept_in_order = 600;
  opencl.waited.push_back({"several queues", 14});
  opencl.waited.push_back({"callbacks", 2});
  opencl.classes.push_back({0, 10, 4, 0, 2, 4096, 3});
  opencl.classes.push_back({14, 990, 956, live_blocks < 3 ? live_blocks : 3, 10, 128 * kMiB - 4096, 6});
  return opencl;
}

inline FrameFigures frame(const char* function, const char* file, unsigned line,
                          const char* module = "/opt/app/train") {
  FrameFigures figures{};
  figures.address = 0x555500001234;
  figures.offset = 0x1234;
  figures.module = module;
  figures.function = function;
  figures.file = file;
  figures.line = line;
  return figures;
}

inline LeakFigures leak(const char* function, std::uint64_t blocks, std::uint64_t bytes) {
  LeakFigures figures{};
  figures.kind = "opencl";
  figures.leak_class = LeakClass::never_freed;
  figures.object = "buffer";
  figures.blocks = blocks;
  figures.bytes = bytes;
  figures.references = {blocks, 0, 0};
  figures.first_s = 0.5;
  figures.last_s = 11.75;
  figures.api = "clCreateBuffer";
  figures.owner = "train";
  figures.owned_by_program = true;
  figures.frames.push_back(frame(function, "src/w.cpp", 42));
  figures.frames.push_back(frame("main", "src/main.cpp", 10));
  figures.frames.push_back(frame("__libc_start_call_main", "", 0, "/lib/x86_64-linux-gnu/libc.so.6"));
  return figures;
}

inline Snapshot leaking_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(opencl_figures(5, 56 * kMiB));
  snapshot.kinds.push_back(host_figures());
  snapshot.leaks.push_back(leak("load_weights", 2, 32 * kMiB));
  LeakFigures retained = leak("keep_weights", 1, 16 * kMiB);
  retained.references = {1, 1, 1};
  FrameFigures inlined = frame("share<float>", "src/share.hpp", 7);
  inlined.inlined = true;
  retained.frames.insert(retained.frames.begin(), inlined);
  snapshot.leaks.push_back(retained);
  LeakFigures child = leak("view", 1, 8 * kMiB);
  child.object = "sub-buffer";
  child.api = "clCreateSubBuffer";
  child.kept_parent_bytes = 8 * kMiB;
  snapshot.leaks.push_back(child);
  child.kept_parent_bytes.reset();  // its parent is live on its own account
  child.bytes = 0;
  snapshot.leaks.push_back(child);
  snapshot.objects.push_back({"contexts", 1, 1});
  snapshot.objects.push_back({"queues", 4, 2});
  snapshot.objects.push_back({"kernels", 9, 0});
  snapshot.fragmentation.push_back(
      {"opencl", 184 * kMiB, 56 * kMiB, 56 * kMiB, 128 * kMiB, 64 * kMiB, false, 192 * kMiB, 96 * kMiB});
  snapshot.contexts.push_back({"opencl",
                               {{"NVIDIA H100", 81'559 * kMiB}},
                               3,
                               2,
                               900,
                               4,
                               50 * kMiB,
                               90 * kMiB,
                               10,
                               100 * kMiB,
                               10.25,
                               {{1, 4, 50 * kMiB, 6, 60 * kMiB}, {3, 0, 0, 4, 40 * kMiB}}});
  snapshot.contexts.push_back({"opencl",
                               {{"pthread", 24'105 * kMiB}, {"", 0}},
                               1,
                               1,
                               100,
                               1,
                               6 * kMiB,
                               6 * kMiB,
                               2,
                               28 * kMiB,
                               11.5,
                               {{2, 1, 6 * kMiB, 2, 28 * kMiB}}});
  snapshot.capture_mean_ns = 183.4;
  snapshot.sites_count = 12;
  snapshot.estimated.push_back("self.capture_mean_ns");
  return snapshot;
}

// One leak of each class, the worst first, and host memory of all.
inline Snapshot judged_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(opencl_figures(7, 7 * kMiB));
  snapshot.kinds.push_back(host_figures());
  std::uint64_t blocks = 0;
  for (const Standing standing : {Standing::lost, Standing::indirectly_lost, Standing::held_by_driver,
                                  Standing::possibly_lost, Standing::reachable, Standing::unclassified}) {
    snapshot.leaks.push_back(leak("make_one", standing == Standing::lost ? 2 : 1, kMiB));
    snapshot.leaks.back().leak_class = class_of(standing);
    snapshot.host_standings[static_cast<std::size_t>(standing)] = {++blocks, blocks * 100};
  }
  std::uint64_t others = 0;
  for (const BlocksAndBytes& some : snapshot.host_standings) others += some.blocks;
  BlocksAndBytes& reachable = snapshot.host_standings[static_cast<std::size_t>(Standing::reachable)];
  reachable.blocks += host_figures().live_blocks - others;
  LeakFigures lost = leak("lose_text", 1, 100);
  lost.kind = "host";
  lost.is_host = true;
  lost.references.reset();
  lost.object = "block";
  lost.api = "malloc";
  lost.leak_class = LeakClass::lost;
  snapshot.host_sites.push_back(lost);
  snapshot.host_without_site = {20, 2000};
  snapshot.estimated.push_back("leaks.host");
  snapshot.judging = {nullptr, 2, 0, 64 * kMiB, kMiB, 0.03125, 0.0009765625};
  return snapshot;
}

inline Snapshot unjudged_snapshot() {
  Snapshot snapshot = leaking_snapshot();
  for (LeakFigures& leak : snapshot.leaks) leak.leak_class = LeakClass::unclassified;
  snapshot.judging = {"the time limit (CISTERN_LEAK_CHECK) is too short", 0, 0, 0, 0, 0.0625};
  return snapshot;
}

inline Snapshot library_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(opencl_figures(2, 8192));
  for (const char* owner : {"libblas_cl.so.2", "_cl.cpython-311.so"}) {
    LeakFigures figures = leak("cache_kernel", 1, 4096);
    figures.owner = owner;
    figures.owned_by_program = false;
    FrameFigures bare = frame("", "", 0, "/usr/lib/libblas_cl.so.2");
    bare.build_id = "deadbeef00112233";
    bare.address = 0;
    figures.frames.assign(3, bare);
    figures.frames[1] = frame("blas_init", "", 0, "/usr/lib/libblas_cl.so.2");
    figures.frames[2] = FrameFigures{};
    figures.frames[2].address = 0x7f0000001000;
    snapshot.leaks.push_back(figures);
  }
  return snapshot;
}

inline Snapshot many_leaks_snapshot() {
  Snapshot snapshot = leaking_snapshot();
  snapshot.rank = 3;
  snapshot.ranks = 8;
  snapshot.leaks.clear();
  snapshot.kinds[0] = opencl_figures(120, 120 * kMiB);  // 15 + 14 + ... + 1
  snapshot.kinds[0].peak_bytes = 120 * kMiB;
  snapshot.fragmentation[0] = {"opencl", 248 * kMiB, 120 * kMiB, 120 * kMiB, 128 * kMiB, 64 * kMiB};
  for (unsigned i = 0; i < 15; ++i) {
    LeakFigures figures = leak("load", 15 - i, (15 - i) * kMiB);
    for (unsigned depth = 0; depth < 9; ++depth)
      figures.frames.insert(figures.frames.begin(), frame("nested", "src/nested.cpp", depth + 1));
    figures.frames[0].line = 100 + i;
    snapshot.leaks.push_back(figures);
  }
  return snapshot;
}

inline Snapshot without_sites_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.sites = "gpu:off,host:off";
  snapshot.kinds.push_back(opencl_figures());
  LeakFigures figures = leak("", 3, 48 * kMiB);
  figures.api = nullptr;
  figures.owner.clear();
  figures.owned_by_program = false;
  figures.frames.clear();
  snapshot.leaks.push_back(figures);
  return snapshot;
}

inline Snapshot clean_snapshot() {
  Snapshot snapshot = empty_snapshot();
  KindFigures opencl = opencl_figures(0, 0);
  opencl.pooled_blocks = opencl.pooled_bytes = 0;
  opencl.failed = 1;
  opencl.unpooled.clear();
  opencl.waited.clear();
  opencl.kept_in_order = 0;
  opencl.classes.clear();
  snapshot.kinds.push_back(opencl);
  snapshot.dropped_events = 2;
  return snapshot;
}

inline Snapshot host_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.command = "sh -c \"echo \\ \x1b[31mred\n\xff\xc3\xb6\"";
  snapshot.kinds.push_back(host_figures());
  return snapshot;
}

inline KindFigures device_figures(const char* name, std::uint64_t allocations) {
  KindFigures device{};
  device.name = name;
  device.pooled_kind = true;
  device.allocations = allocations;
  device.frees = allocations - 2;
  device.pool_hits = allocations - 40;
  device.pool_misses = 40;
  device.driver_allocs = 40;
  device.driver_frees = 8;
  device.driver_syncs = 1200;
  device.live_blocks = 2;
  device.live_bytes = 20 * kMiB;
  device.requested_bytes = 19 * kMiB;
  device.peak_bytes = 900 * kMiB;
  device.peak_at_s = 3.25;
  device.pooled_blocks = 30;
  device.pooled_bytes = 700 * kMiB;
  device.unpooled.push_back({"while capturing", 5});
  device.classes.push_back({0, allocations / 2, allocations / 2 - 10, 0, 10, 40960, 12});
  device.classes.push_back({10, allocations / 4, allocations / 4 - 10, 1, 10, 20 * kMiB, 9, 2 * kMiB, 3 * kMiB / 2});
  device.classes.push_back({14, allocations / 8, allocations / 8 - 10, 1, 4, 64 * kMiB, 5, 18 * kMiB, 35 * kMiB / 2});
  device.classes.push_back({20, allocations / 8, allocations / 8 - 10, 0, 6, 616 * kMiB - 40960, 6});
  return device;
}

inline KindFigures counted_figures(const char* name, std::uint64_t allocations, std::uint64_t live_blocks) {
  KindFigures figures{};
  figures.name = name;
  figures.allocations = allocations;
  figures.frees = allocations - live_blocks;
  figures.live_blocks = live_blocks;
  figures.live_bytes = live_blocks * kMiB;
  figures.peak_bytes = allocations * kMiB;
  return figures;
}

inline LeakFigures cuda_leak(const char* kind, const char* object, const char* api, std::uint64_t blocks,
                             std::uint64_t bytes) {
  LeakFigures figures = leak("load_weights", blocks, bytes);
  figures.kind = kind;
  figures.object = object;
  figures.api = api;
  figures.references.reset();
  return figures;
}

inline TransferFigures transfer(const char* direction, bool pageable, bool asynchronous, std::uint64_t bytes) {
  TransferFigures figures{};
  figures.kind = "cuda";
  figures.direction = direction;
  figures.pageable = pageable;
  figures.asynchronous = asynchronous;
  figures.count = 3000;
  figures.bytes = bytes;
  return figures;
}

inline Vector<TransferFigures> transfers() {
  Vector<TransferFigures> all;
  all.push_back(transfer("host to device", true, false, 6000 * kMiB));
  all[0].seconds = 2.5;
  all[0].timed_bytes = all[0].bytes;
  all[0].efficiency = 0.67;
  all[0].rate_p50 = 2.0 * kMiB * 1024;
  all[0].rate_p95 = 3.5 * kMiB * 1024;
  all[0].failed = 2;
  all[0].api = "cudaMemcpy";
  all[0].site_bytes = 4000 * kMiB;
  all[0].frames.push_back(frame("load_batch", "src/batch.cpp", 77));
  all[0].frames.push_back(frame("main", "src/main.cpp", 12));
  all.push_back(transfer("host to device", false, true, 3000 * kMiB));
  all[1].api = "cudaMemcpyAsync";
  all[1].site_bytes = 3000 * kMiB;
  all[1].frames.push_back(frame("prefetch", "src/batch.cpp", 90));
  all.push_back(transfer("device to device", false, true, 100 * kMiB));
  all.push_back(transfer("device to host", false, false, 12345));
  all[3].seconds = 0.00125;
  all[3].timed_bytes = all[3].bytes;
  all.push_back(transfer("unknown", true, false, 512));  // unknown memory is not called pageable
  all[4].seconds = 0;
  all[4].timed_bytes = all[4].bytes;
  all[4].site_bytes = 512;
  return all;
}

inline CopySite tiny_copies(const char* kind, std::uint64_t count, bool blocking) {
  CopySite tiny{};
  tiny.kind = kind;
  tiny.direction = "host to device";
  tiny.pageable = true;
  tiny.asynchronous = !blocking;
  tiny.count = count;
  tiny.bytes = count * 4096;
  tiny.api = "cudaMemcpy";
  if (blocking) tiny.seconds = 1.25, tiny.lost_seconds = 0.0625;
  tiny.frames.push_back(frame("send_one", "src/batch.cpp", 31));
  return tiny;
}

inline UsingSite using_site(const char* kind, const char* function, std::uint64_t allocations,
                            std::uint64_t peak_bytes) {
  UsingSite site{};
  site.kind = kind;
  site.api = "cudaMalloc";
  site.allocations = allocations;
  site.allocated_bytes = allocations * 3 * kMiB;
  site.temporary = allocations * 9 / 10;
  site.peak_blocks = 2;
  site.peak_bytes = peak_bytes;
  site.frames = leak(function, 1, 1).frames;
  return site;
}

inline Snapshot cuda_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(device_figures("device:0", 10000));
  snapshot.kinds.push_back(device_figures("pinned", 800));
  snapshot.kinds.push_back(counted_figures("managed", 4, 0));
  snapshot.kinds.push_back(counted_figures("async:0", 40, 1));
  snapshot.kinds.push_back(counted_figures("registered", 1, 1));
  snapshot.kinds.push_back(host_figures());
  snapshot.leaks.push_back(cuda_leak("device:0", "cudaMalloc block", "cudaMalloc", 2, 19 * kMiB));
  snapshot.leaks.push_back(cuda_leak("async:0", "pool block", "cudaMallocAsync", 1, kMiB));
  snapshot.kinds[0].allocated_bytes = 30000 * kMiB;
  snapshot.kinds[0].temporary = 4500;
  snapshot.at_peak.push_back(using_site("device:0", "load_weights", 40, 500 * kMiB));
  snapshot.at_peak.push_back(using_site("device:0", "step", 5000, 6 * kMiB));
  snapshot.in_loops.push_back(using_site("device:0", "step", 5000, 6 * kMiB));
  snapshot.waits.push_back({"cuda", "cuCtxSynchronize", 0, 120'000, 2.5, leak("step", 1, 1).frames});
  snapshot.waits.push_back({"cuda", "cuStreamSynchronize", 0, 999, 0.5, leak("rarely", 1, 1).frames});
  snapshot.objects.push_back({"CUDA events", 400, 300});
  snapshot.object_sites.push_back({"CUDA events", "cuEventCreate", 0, 290, leak("record", 1, 1).frames});
  snapshot.object_sites.push_back({"CUDA events", "cuEventCreate", 0, 9, leak("few", 1, 1).frames});
  snapshot.device_memory.push_back({0, 81920 * kMiB, 80000 * kMiB, 720 * kMiB, 11.9});
  snapshot.fragmentation.push_back(
      {"device:0", 720 * kMiB, 20 * kMiB, 19 * kMiB, 700 * kMiB, 256 * kMiB, false, 800 * kMiB, 900 * kMiB});
  snapshot.fragmentation.push_back({"pinned", 720 * kMiB, 20 * kMiB, 19 * kMiB, 700 * kMiB, 350 * kMiB});
  snapshot.transfers = transfers();
  snapshot.copy_sites.push_back(tiny_copies("cuda", 250'000, true));
  snapshot.frameworks.push_back(framework_named("PyTorch"));
  snapshot.sites_count = 9;
  return snapshot;
}

inline Snapshot many_devices_snapshot() {
  Snapshot snapshot = empty_snapshot();
  static constexpr const char* kNames[] = {"device:0", "device:1", "device:2",  "device:3",
                                           "device:4", "device:5", "device:10", "pinned"};
  for (const char* name : kNames) {
    snapshot.kinds.push_back(device_figures(name, 5000 + 80 * snapshot.kinds.size()));
    snapshot.kinds.back().unpooled.clear();
    snapshot.fragmentation.push_back(
        {name, 720 * kMiB, 20 * kMiB, 19 * kMiB, 700 * kMiB, 256 * kMiB, false, 800 * kMiB, 900 * kMiB});
    if (snapshot.kinds.back().name != "pinned")
      snapshot.device_memory.push_back(
          {static_cast<int>(snapshot.device_memory.size()), 81920 * kMiB, 80600 * kMiB, 720 * kMiB, 9.5});
  }
  snapshot.transfers = transfers();
  snapshot.transfers.insert(snapshot.transfers.end(), snapshot.transfers.begin(), snapshot.transfers.end());
  for (const char* name : {"PyTorch", "CuPy", "RMM"}) snapshot.frameworks.push_back(framework_named(name));
  snapshot.escaped = 2;
  return snapshot;
}

// A program of a later toolkit than is known, with graphs that allocate.
inline Snapshot newer_toolkit_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(counted_figures("graph:0", 6, 0));
  snapshot.kinds.back().graph_memory = {2 * kMiB, 6 * kMiB, 4 * kMiB, 8 * kMiB, 9.25};
  snapshot.unknown_functions = {{"cuMemInvent", "cuMemAlloc of CUDA 14.0", "cuThird", "cuFourth", "cuFifth"}, 7};
  snapshot.device_ranges.push_back(
      {0, 655360 * kMiB, 720 * kMiB, 730 * kMiB, 705 * kMiB, 4 * kMiB, 12 * kMiB, 30'000, 29'100, 18, 1'020, 0});
  return snapshot;
}

inline FrameFigures python_frame(const char* function, const char* file, unsigned line) {
  FrameFigures figures{};
  figures.function = function;
  figures.file = file;
  figures.line = line;
  figures.python = true;
  return figures;
}

// Python code on every stack, as resolve() leaves it; some of it grows.
inline Snapshot python_snapshot() {
  Snapshot snapshot = empty_snapshot();
  KindFigures opencl = opencl_figures(4, 64 * kMiB);
  opencl.over_time = {0.5, 1, {0, 8 * kMiB, 16 * kMiB}, {8 * kMiB, 16 * kMiB, 24 * kMiB}};
  snapshot.kinds.push_back(opencl);
  LeakFigures row = leak("", 2, 32 * kMiB);
  row.owner = "train.py:42";
  row.frames = {frame("", "", 0, "/venv/lib/python3.12/site-packages/pyopencl/_cl.cpython-312-x86_64-linux-gnu.so"),
                frame("cfunction_call", "", 0, "/usr/bin/python3.12"),
                python_frame("Linear.forward", "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 125),
                python_frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241),
                python_frame("train_step", "train.py", 42),
                python_frame("main", "train.py", 80),
                python_frame("<module>", "train.py", 99),
                frame("Py_BytesMain", "", 0, "/usr/bin/python3.12")};
  for (FrameFigures& one : row.frames) one.folded = !one.python;
  row.trend = {TrendKind::growing, 1.5 * kMiB, 2.5, 14 * kMiB};
  snapshot.leaks.push_back(row);
  GrowingSite growing{{"opencl", 1, "clCreateBuffer", row.trend, opencl.over_time}, row.frames};
  snapshot.growing.push_back(growing);
  growing.suppressed = true;
  snapshot.growing.push_back(growing);
  for (FrameFigures& one : row.frames) one.folded = false;
  row.trend = {TrendKind::one_off};
  snapshot.leaks.push_back(row);
  FragmentationFigures fragments{"opencl", 72 * kMiB, 64 * kMiB, 64 * kMiB, 8 * kMiB, 8 * kMiB};
  fragments.reserved_peak_bytes = 600 * kMiB;
  fragments.worst = {3.25, 512 * kMiB, 24 * kMiB};
  snapshot.pythons = {{3, 12, 1, nullptr}, {3, 6, 15, "its version is not known"}};
  snapshot.fragmentation.push_back(fragments);
  return snapshot;
}

// Host memory of the pool, with samples.
inline Snapshot host_pool_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.sites = "gpu:all,host:512KiB";
  KindFigures host = host_figures();
  host.sizes = {
      {16, 1000, 10, 246}, {64, 500000, 300, 724}, {112, 700000, 20, 565}, {1280, 33000, 200, 55}, {32768, 567, 37, 3}};
  snapshot.kinds.push_back(std::move(host));
  for (const char* function : {"read_rows", "rarely", "load", "make_index"}) {
    LeakFigures site = leak(function, 1200, 3 * kMiB / 4);
    site.kind = "host";
    site.is_host = true;
    site.references.reset();
    site.leak_class = LeakClass::live;
    site.object = "block";
    site.block_bytes = {64, 4096};
    site.bytes_error = 90 * 1024;
    site.api = "malloc";
    site.inherited = std::string_view(function) == "rarely";
    snapshot.host_sites.push_back(std::move(site));
  }
  snapshot.fragmentation.push_back(
      {"host", 4 * kMiB, 3 * kMiB / 2, std::nullopt, 5 * kMiB / 2, 2 * kMiB, true, 4 * kMiB, 2 * kMiB});
  snapshot.estimated.push_back("kinds.host.peak_bytes");
  snapshot.estimated.push_back("leaks.host");
  return snapshot;
}

// The first leak is known; what is left changes the exit code.
inline Snapshot suppressed_snapshot() {
  Snapshot snapshot = leaking_snapshot();
  LeakFigures& known = snapshot.leaks.front();
  known.suppressed = true;
  snapshot.suppressions = {{"leak:load_weights", false, 1, known.blocks, known.bytes},
                           {"leak:nobody", false},
                           {"leak:libpocl.so", true, 1, 40, 4096}};
  LeakFigures of_driver = leak("pocl_init", 40, 4096);
  of_driver.kind = "host";
  of_driver.is_host = true;
  of_driver.references.reset();
  of_driver.leak_class = LeakClass::live;
  of_driver.suppressed = true;
  of_driver.bytes_error = 512;
  snapshot.host_sites.push_back(std::move(of_driver));
  snapshot.gate = {Outcome::failed};
  snapshot.exit_code = 23;
  return snapshot;
}

// Cistern did not see one of the threads; the same happened in one of three children.
inline Snapshot undecided_snapshot() {
  Snapshot snapshot = judged_snapshot();
  snapshot.judging->unseen_threads = 1;
  snapshot.gate = {Outcome::undecided, "the registers of 1 other thread were not seen"};
  snapshot.family.counts = {1, 0, 1, 1};
  snapshot.exit_code = 24;
  return snapshot;
}

inline Snapshot at_moment(Snapshot snapshot, const char* moment) {
  snapshot.moment = moment;
  if (!snapshot.ended_by_itself())
    for (LeakFigures& leak : snapshot.leaks) leak.leak_class = LeakClass::live;
  return snapshot;
}

}  // namespace cistern::examples
