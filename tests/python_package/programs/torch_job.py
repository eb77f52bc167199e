"""PyTorch over Cistern's pools. argv[1]: the case."""
import gc
import pickle
import random
import sys

import driver
import libcistern
import torch


def stats():
    gc.collect()
    return libcistern.torch.statistics()


def empty(nbytes, device="cuda"):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def random_work(seed):
    """What was asked for: tensors in all and alive, and the most bytes at a time."""
    draw = random.Random(seed)
    alive, count, nbytes, peak, freed = [], 0, 0, 0, 0
    for _ in range(400):
        if alive and draw.random() < 0.45:
            gone = alive.pop(draw.randrange(len(alive)))
            nbytes -= gone.numel()
            freed += gone.numel()
            del gone
        else:
            size = draw.choice((100, 5000, 1 << 20, 3 << 20)) + draw.randrange(1000)
            alive.append(empty(size, f"cuda:{draw.randrange(2)}"))
            count, nbytes = count + 1, nbytes + size
            peak = max(peak, nbytes)
    return alive, {"allocation.all.allocated": count, "allocation.all.current": len(alive),
                   "allocation.all.freed": count - len(alive), "allocated_bytes.all.current": nbytes,
                   "allocated_bytes.all.peak": peak, "allocated_bytes.all.freed": freed,
                   "allocated_bytes.all.allocated": nbytes + freed}


def figures_are_what_the_script_asked_for():
    """With the pool: the driver's own count is that of Cistern's calls."""
    libcistern.torch.use()
    seed = random.randrange(1 << 30)
    alive, wanted = random_work(seed)
    found = stats()
    assert {key: found[key] for key in wanted} == wanted, (seed, found, wanted)
    device = libcistern.statistics("device")
    assert device.driver_allocs == driver.simulated("allocs"), device
    segments = libcistern.torch.snapshot()["segments"]
    assert sum(segment["total_size"] for segment in segments) == driver.simulated("live_bytes"), segments
    assert sum(segment["requested_size"] for segment in segments) == wanted["allocated_bytes.all.current"], segments
    assert found["pool_hits"] > 50 and device.driver_allocs < wanted["allocation.all.allocated"]
    assert found["reserved_bytes.all.current"] >= wanted["allocated_bytes.all.current"]
    alive.clear()
    assert stats()["allocation.all.current"] == 0


def figures_are_the_drivers():
    """Without the pool (CISTERN_DEVICE_POOL=off) each tensor is a call."""
    libcistern.torch.use()
    alive, wanted = random_work(random.randrange(1 << 30))
    found = stats()
    assert found["allocation.all.allocated"] == driver.simulated("allocs")
    assert found["allocation.all.freed"] == driver.simulated("frees")
    assert found["allocated_bytes.all.current"] == driver.simulated("live_bytes")
    assert found["allocated_bytes.all.current"] == wanted["allocated_bytes.all.current"] and alive


def in_the_order_of_streams():
    libcistern.torch.use()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    gate = driver.Gate()
    with torch.cuda.stream(side):
        x = empty(5000)
        at = x.data_ptr()
        gate.hold(side.cuda_stream)
        del x
        assert empty(5000).data_ptr() == at, "behind the first one's work"
    assert empty(5000).data_ptr() != at, "the side stream still uses it"
    gate.open()
    torch.cuda.synchronize()

    gate = driver.Gate()
    x = empty(50000)
    at = x.data_ptr()
    x.record_stream(other)
    gate.hold(other.cuda_stream)
    del x
    kept = [empty(50000) for _ in range(3)]
    assert at not in [y.data_ptr() for y in kept], "another stream still uses it"
    gate.open()
    torch.cuda.synchronize()
    del kept
    given = [y.data_ptr() for y in [empty(50000) for _ in range(200)]]
    assert any(0 <= at - address < 50000 for address in given), "perhaps joined with what lay before it"


def without_memory():
    libcistern.torch.use()
    kept = empty(1000)
    try:
        empty(1 << 50)
    except RuntimeError as error:
        assert "CUDA out of memory: tried to allocate 1.0 PiB on device 0" in str(error), error
    else:
        raise AssertionError("there is no so much memory")
    assert empty(1000).numel() == kept.numel() and stats()["num_ooms"] == 1
    assert empty(0).numel() == 0


def snapshots():
    libcistern.torch.use()
    kept = empty(3000)
    line = sys._getframe().f_lineno - 1
    libcistern.torch.snapshot("memory.pickle")
    with open("memory.pickle", "rb") as file:
        made = pickle.load(file)
    (segment,) = made["segments"]
    block, rest = segment["blocks"]
    assert (block["address"], block["size"], block["requested_size"]) == (kept.data_ptr(), 3072, 3000), block
    assert block["frames"][1] == {"name": "snapshots", "filename": __file__, "line": line}, block["frames"]
    assert (rest["address"], rest["size"]) == (kept.data_ptr() + 3072, segment["total_size"] - 3072), rest
    assert (block["state"], rest["state"]) == ("active_allocated", "inactive")
    assert segment["total_size"] == libcistern.figures("device").reserved_bytes, segment
    from torch.cuda import _memory_viz
    summary = _memory_viz.segsum(made)
    assert "segments: 1" in summary and "total_allocated: 2.9KiB" in summary, summary
    between, last = empty(5000), empty(1000)
    del between
    (segment,) = libcistern.torch.snapshot()["segments"]
    assert [row["state"] for row in segment["blocks"]] == ["active_allocated", "inactive"] * 2, segment
    assert segment["blocks"][2]["address"] == last.data_ptr() and segment["allocated_size"] == 3072 + 1024


def snapshots_of_whole_blocks():
    libcistern.torch.use(segments=False)
    kept = empty(3000)
    (segment,) = libcistern.torch.snapshot()["segments"]
    assert (segment["address"], segment["total_size"]) == (kept.data_ptr(), 3072) and len(segment["blocks"]) == 1
    try:
        libcistern.torch.allocator()
    except libcistern.CisternError:
        raise AssertionError("it has whole blocks, and nobody asked for others") from None


def under_torchs_own_allocator():
    pool = libcistern.torch.pool()
    with torch.cuda.use_mem_pool(pool):
        x = empty(5000)
    outside = empty(5000)
    assert stats()["allocation.all.current"] == 1, "a segment"
    assert torch.cuda.memory_stats()["allocation.all.current"] == 2
    (segment,) = pool.snapshot()
    assert segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"] and outside.numel()
    assert torch.cuda.memory_allocated() >= 10000
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        captured = empty(3 << 20)
        captured.zero_()
    captured.copy_(torch.ones(3 << 20, dtype=torch.uint8))
    graph.replay()
    assert int(captured.cpu().sum()) == 0
    assert any(each["address"] <= captured.data_ptr() < each["address"] + each["total_size"]
               for each in pool.snapshot()), "it lies in a segment of ours"


def a_pool_that_runs_out():
    """On a device of 200 MiB: first torch gives back what it retains outside of the pool."""
    pool = libcistern.torch.pool()
    empty(100 << 20)
    with torch.cuda.use_mem_pool(pool):
        kept = empty(150 << 20)
        assert torch.cuda.memory_stats()["num_alloc_retries"] == 1
        try:
            empty(100 << 20)
        except torch.OutOfMemoryError:
            assert torch.cuda.memory_stats()["num_ooms"] == 1 and kept.numel()
        else:
            raise AssertionError("there is no so much memory")


def graphs_do_not_allocate():
    libcistern.torch.use()
    kept = empty(5000)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            empty(5000)
    except RuntimeError as error:
        assert "Cistern: the CUDA driver refused" in str(error) or "capture" in str(error), error
        assert kept.numel()
        return
    raise AssertionError("a graph has the address of a block that is given again")


def too_late():
    x = empty(100)
    try:
        libcistern.torch.use()
    except RuntimeError as error:
        assert "already initialized" in str(error), error
        assert x.numel() == 100
        return
    raise AssertionError("torch had an allocator already")


def leaks_of_tensors():
    """With torch's own allocator, whose cache does not count."""
    with libcistern.leaks() as found:
        empty(30 << 20)
    assert found == [], found
    with libcistern.leaks() as found:
        kept = empty(30 << 20)
    line = sys._getframe().f_lineno - 1
    assert [leak.stack[1].line for leak in found] == [line] and kept.numel()


def unseen():
    """Without the preloaded library: the default stream's order, and nothing on stderr."""
    libcistern.torch.use()
    x = empty(5000)
    at = x.data_ptr()
    del x
    assert empty(5000).data_ptr() == at
    with torch.cuda.stream(torch.cuda.Stream()):
        del [empty(5000)][:]
    assert stats()["allocation.all.current"] == 0


globals()[sys.argv[1]]()
print("done")
