"""Cistern's pools as numba's external memory manager.

    NUMBA_CUDA_MEMORY_MANAGER=libcistern.numba python job.py
    libcistern.numba.use()                # or so, before the first CUDA call of numba's

Device memory comes from the pool "numba", whose figures are pool().statistics(). A block that goes back may be used by
any stream until then: as with cuMemFree, its memory is given again when the context's work has ended.
"""
import ctypes
import functools

from libcistern import _frameworks
from libcistern._library import LIMIT, NO_MEMORY, check, library
from libcistern._pools import Pool, memory_info

_frameworks.need("numba", "libcistern.numba")
_cuda = _frameworks.need("numba.cuda", "libcistern.numba")


@functools.lru_cache(maxsize=None)
def pool():
    return Pool("device", "numba", segments=True)


def _finalizer(address, allocations):
    def finalize():
        allocations.pop(address, None)
        library().cistern_pool_deallocate(pool().handle, address, None)
    return finalize


class CisternMemoryManager(_cuda.GetIpcHandleMixin, _cuda.HostOnlyCUDAMemoryManager):
    """Device memory of ours, in the current context; numba's own for the host."""

    @property
    def interface_version(self):
        return 1

    def initialize(self):
        """There is nothing to prepare in a context."""

    def memalloc(self, size):
        block = ctypes.c_void_p()
        status = library().cistern_pool_allocate(pool().handle, size, 0, block)
        if status in (NO_MEMORY, LIMIT):
            self.deallocations.clear()  # what numba puts off
            status = library().cistern_pool_allocate(pool().handle, size, 0, block)
        check(status, f"{size} bytes of pool numba")
        self.allocations[block.value] = block
        return _cuda.MemoryPointer(self.context, block, size, finalizer=_finalizer(block.value, self.allocations))

    def get_memory_info(self):
        info = memory_info(self.context.device.id)
        return _cuda.MemoryInfo(free=info.free_bytes, total=info.total_bytes)


_numba_memory_manager = CisternMemoryManager  # what NUMBA_CUDA_MEMORY_MANAGER looks for


def use():
    """RuntimeError, numba's own: its memory manager is in use already."""
    _cuda.set_memory_manager(CisternMemoryManager)
