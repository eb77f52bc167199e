"""A small deterministic job for CuPy on a GPU: arrays of many sizes with and without its own pool, pinned transfers and
two streams. Prints a hash of every result, so that two runs can be compared. cupy_job.py allocator: Cistern is CuPy's
allocator."""
import hashlib
import pathlib
import sys

try:
    import cupy
    import numpy
except ImportError as error:
    print(f"no cupy: {error}", file=sys.stderr)
    sys.exit(77)
try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(f"cupy sees no GPU: {error}", file=sys.stderr)
    sys.exit(77)


def show(name, array):
    print(f"{name}: {hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16]}", flush=True)


def many_sizes(name):
    total = cupy.zeros((), dtype=cupy.int64)
    for step in range(60):
        blocks = [cupy.full(1000 * (step + 1) + 37 * index, index, dtype=cupy.int64) for index in range(8)]
        total += sum(block.sum() for block in blocks)
        del blocks
    show(name, total)


def two_streams():
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for step in range(20):
        with first:
            left = cupy.arange(50_000 + step, dtype=cupy.int64) * step
        with second:
            right = cupy.arange(50_000 + step, dtype=cupy.int64) + step
        first.synchronize()
        second.synchronize()
        total = left + right
    show("two streams", total)


def pinned_transfers():
    for step in range(10):
        count = 10_000 + step
        memory = cupy.cuda.alloc_pinned_memory(8 * count)
        values = numpy.frombuffer(memory, dtype=numpy.int64, count=count)
        values[:] = numpy.arange(count) * step
        array = cupy.empty(count, dtype=cupy.int64)
        array.set(values)
        del values, memory
    show("pinned transfers", array)
    square = cupy.arange(4096, dtype=cupy.int64).reshape(64, 64)
    show("product", square @ square)


if sys.argv[1:] == ["allocator"]:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "shim/python"))
    import libcistern.cupy
    libcistern.cupy.use()
many_sizes("sums with CuPy's pool")
two_streams()
pinned_transfers()
cupy.get_default_memory_pool().free_all_blocks()
cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)
many_sizes("sums without CuPy's pool")
two_streams()
pinned_transfers()
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
many_sizes("sums with stream-ordered memory")
print("done")
