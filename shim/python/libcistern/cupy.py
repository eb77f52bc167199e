"""Cistern's pools as CuPy's allocator of device memory.

    import libcistern
    libcistern.cupy.use()

In the order of CuPy's current stream, as its own pool: a block goes back on the stream that was current when it was
allocated.
"""
from libcistern import _frameworks
from libcistern._pools import Pool


def allocator(pool=None):
    """A cupy.cuda.PythonFunctionAllocator; `pool`: a libcistern.Pool of device memory, or None for a new one with
    segments."""
    cupy = _frameworks.need("cupy", "libcistern.cupy")
    pool = pool or Pool("device", "cupy", segments=True)
    streams = {}

    def allocate(nbytes, device):
        stream = cupy.cuda.get_current_stream()  # kept alive: the block goes back on it
        try:
            address = pool.allocate(nbytes, stream.ptr, device)
        except MemoryError:
            raise cupy.cuda.memory.OutOfMemoryError(nbytes, pool.statistics().live_bytes) from None
        streams[address] = stream
        return address

    def deallocate(address, device):
        stream = streams.pop(address, None)
        pool.deallocate(address, stream.ptr if stream else 0)
    made = cupy.cuda.PythonFunctionAllocator(allocate, deallocate)
    return made


def use(pool=None):
    """CuPy's device memory from now on."""
    made = allocator(pool)
    _frameworks.need("cupy", "libcistern.cupy").cuda.set_allocator(made.malloc)
    return made
