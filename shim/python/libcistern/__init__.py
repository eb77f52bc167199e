"""Cistern for Python: run programs under it, ask it, and hand its pools to frameworks. Pure Python, over the C
interface of libcistern.so (ctypes).

    python -m libcistern run -- python train.py      under the preloaded library, with a report at exit
    libcistern.statistics("device")                  figures; report(), trim(), defragment()
    with libcistern.leaks() as found: ...            what a block of code leaked, with its lines
    libcistern.torch.use()                           allocators: torch, rmm, cupy, cuda_core, numba; pinned() for NumPy

What cannot be done here raises CisternError, whose text says why. Thread-safe, but for set-up calls (use()).
"""
import importlib

from libcistern._leaks import Leak, Line, leaks
from libcistern._library import CisternError, NotPreloadedError, is_preloaded, library_path
from libcistern._pools import Pool, defragment, figures, memory_info, report, statistics, trim, version

__all__ = ["CisternError", "Leak", "Line", "NotPreloadedError", "Pool", "defragment", "figures", "is_preloaded",
           "leaks", "library_path", "memory_info", "pinned", "report", "statistics", "trim", "version"]
_FRAMEWORKS = ("torch", "rmm", "cupy", "cuda_core", "numba", "numpy")


def pinned(pool=None):
    """with libcistern.pinned(): ...   NumPy arrays that are made there lie in pinned memory: see libcistern.numpy."""
    return importlib.import_module("libcistern.numpy").pinned(pool)


def __getattr__(name):
    # A framework is imported when it is named, and never before.
    if name in _FRAMEWORKS:
        return importlib.import_module(f"libcistern.{name}")
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'libcistern' has no attribute {name!r}")
