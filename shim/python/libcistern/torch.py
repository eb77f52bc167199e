"""Cistern's pools as PyTorch's CUDA allocator.

    import libcistern
    libcistern.torch.use()                # before the first tensor on a GPU
    libcistern.torch.statistics()         # torch.cuda.memory_stats() has none with an allocator of one's own
    libcistern.torch.snapshot("mem.pickle")   # for https://pytorch.org/memory_viz

Blocks are given again in the order of their stream, as torch's own allocator does; what was used on another stream
(Tensor.record_stream) only after that work has ended. Without the preloaded library, blocks of streams other than the
default one are given again only when their work has ended, and those with record_stream wait for it.

A CUDA graph must not allocate while it is captured, and out of memory is a RuntimeError. Neither holds for pool(), a
torch.cuda.MemPool: torch's own allocator over large blocks of ours.
"""
import bisect
import ctypes
import pickle

from libcistern import _frameworks
from libcistern._leaks import live_blocks, stack_of
from libcistern._library import VISIT_POOL, VISIT_SEGMENT, check, library, library_path
from libcistern._pools import device_count, figures, pool_statistics

ROUNDING = 512  # of the driver
_used = None


def _torch():
    return _frameworks.need("torch", "libcistern.torch")


def _handle():
    """The pool "torch", by its handle."""
    pool = ctypes.c_void_p()
    check(library().cistern_torch_pool(pool), "pool torch")
    return pool


def _pluggable(allocate):
    made = _torch().cuda.memory.CUDAPluggableAllocator(library_path(), allocate, "cistern_torch_free")
    record_stream = ctypes.cast(library().cistern_torch_record_stream, ctypes.c_void_p).value
    made.allocator().set_record_stream_fn(record_stream)
    return made


def allocator(segments=True):
    """A new torch.cuda.memory.CUDAPluggableAllocator over the pool "torch". `segments`: as those of Pool; CisternError:
    the pool has some already."""
    if not segments:
        check(library().cistern_torch_use_whole_blocks(), "whole blocks for the pool torch")
    return _pluggable("cistern_torch_alloc")


def use(segments=True):
    """All of torch's CUDA memory from now on. `segments`: its pool cuts blocks out of large allocations; otherwise each
    block is one. RuntimeError, torch's own: it has allocated already."""
    global _used
    made = allocator(segments)
    _torch().cuda.memory.change_current_allocator(made)
    _used = made
    return made


def pool():
    """A torch.cuda.MemPool, for `with torch.cuda.use_mem_pool(pool):`, whose segments are blocks of ours."""
    made = _pluggable("cistern_torch_alloc_or_null")
    mem_pool = _torch().cuda.MemPool(made.allocator())
    mem_pool.cistern_allocator = made  # which must live as long
    return mem_pool


def statistics():
    """What the pool "torch" gave, by names that torch.cuda.memory_stats() has for it, of all devices together: counts
    and bytes, current, peak, allocated and freed in all. reserved_bytes: what Cistern has of the driver, for all."""
    of = pool_statistics(_handle())
    device = figures("device")
    return {
        "allocation.all.current": of.live_blocks,
        "allocation.all.allocated": of.allocations,
        "allocation.all.freed": of.frees,
        "allocated_bytes.all.current": of.live_bytes,
        "allocated_bytes.all.peak": of.peak_bytes,
        "allocated_bytes.all.allocated": of.allocated_bytes,
        "allocated_bytes.all.freed": of.allocated_bytes - of.live_bytes,
        "reserved_bytes.all.current": device.reserved_bytes,
        "reserved_bytes.all.peak": device.reserved_peak_bytes,
        "num_ooms": of.failed,
        "pool_hits": of.pool_hits,
    }


def _blocks():
    """The live blocks of the pool "torch": (address, bytes, frames, device)."""
    of_pool = {}

    def visit(block, size, _):
        of_pool[block] = size
        return 0
    library().cistern_pool_visit(_handle(), VISIT_POOL(visit), None)
    stacks, blocks = {}, []
    for address, size, _, _, site, device in live_blocks("device"):
        if address not in of_pool:
            continue
        if site not in stacks:
            stacks[site] = [{"name": line.function or "??", "filename": line.file or "??", "line": line.line}
                            for line in stack_of(site)]
        blocks.append((address, size, stacks[site], device))
    return sorted(blocks, key=lambda block: block[0])


def _segments():
    """The segments of the pool: (address, bytes, device)."""
    found = []

    def visit(segment, size, device, _):
        found.append((segment, size, device))
        return 0
    library().cistern_pool_visit_segments(_handle(), VISIT_SEGMENT(visit), None)
    return sorted(found)


def _block_row(address, size, requested, state, frames):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _segment_row(address, size, device, blocks):
    """`blocks`: the live blocks in it, by address. The bytes between them are inactive."""
    rows, at = [], address
    for first, requested, frames, _ in blocks:
        taken = -(-requested // ROUNDING) * ROUNDING
        if first > at:
            rows.append(_block_row(at, first - at, 0, "inactive", []))
        rows.append(_block_row(first, taken, requested, "active_allocated", frames))
        at = first + taken
    if at < address + size:
        rows.append(_block_row(at, address + size - at, 0, "inactive", []))
    taken = sum(row["size"] for row in rows if row["state"] == "active_allocated")
    return {"device": max(device, 0), "address": address, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "total_size": size, "allocated_size": taken,
            "active_size": taken, "requested_size": sum(row["requested_size"] for row in rows),
            "frames": blocks[0][2] if len(blocks) == 1 else [], "blocks": rows}


def snapshot(path=None):
    """The segments and live blocks of the pool "torch", with their Python lines, in the form of
    torch.cuda.memory._snapshot(). A whole block is a segment. `path`: pickled there, as the viewer reads it. It has no
    trace of earlier allocations."""
    blocks, segments, done = _blocks(), [], 0

    def whole_blocks(end):
        for block in blocks[done:end]:
            segments.append(_segment_row(block[0], -(-block[1] // ROUNDING) * ROUNDING, block[3], [block]))
    for address, size, device in _segments():
        first, end = (bisect.bisect_left(blocks, (border,)) for border in (address, address + size))
        whole_blocks(first)
        segments.append(_segment_row(address, size, device, blocks[first:end]))
        done = end
    whole_blocks(len(blocks))
    made = {"segments": segments, "device_traces": [[] for _ in range(max(device_count(), 1))],
            "allocator_settings": {"backend": "cistern"}, "external_annotations": []}
    if path is not None:
        with open(path, "wb") as file:
            pickle.dump(made, file)
    return made
