"""numba-cuda over Cistern's pool. argv[1]: the case."""
import gc
import sys

import driver
import libcistern
import numpy

if sys.argv[1] == "by_call":
    libcistern.numba.use()
from numba import cuda  # noqa: E402


def job():
    sent = numpy.arange(1000, dtype=numpy.float32)
    array = cuda.to_device(sent)
    figures = libcistern.numba.pool().statistics()
    assert (figures.live_blocks, figures.live_bytes) == (1, 4000), figures
    assert driver.in_ranges() or driver.simulated("live_bytes") >= 4000
    assert (array.copy_to_host() == sent).all()
    assert cuda.current_context().get_memory_info().total == 8 << 30
    del array
    gc.collect()
    figures = libcistern.numba.pool().statistics()
    assert (figures.live_blocks, figures.frees) == (0, 1), figures
    try:
        cuda.device_array(1 << 50, dtype=numpy.uint8)
    except MemoryError as error:
        assert "pool numba: out of memory" in str(error)
    else:
        raise AssertionError("there is no so much memory")
    pinned = cuda.pinned_array(1000)
    assert driver.is_pinned(pinned.ctypes.data) and libcistern.statistics("pinned").live_blocks == 1


by_name = by_call = job
globals()[sys.argv[1]]()
print("done")
