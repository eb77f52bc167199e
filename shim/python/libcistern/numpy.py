"""NumPy arrays in pinned memory.

    with libcistern.pinned():
        batch = numpy.empty((256, 1024))      # pinned; what is done with it is as with any array

NumPy's own rules hold (PyDataMem_SetHandler): it is for the calling context (contextvars: a thread, a task) only; an
array keeps its handler, so it may outlive the `with`, and grow there; views and what NumPy makes meanwhile are pinned
too, small temporaries included. MemoryError where there is no pinned memory left.
"""
import contextlib
import ctypes

from libcistern import _frameworks
from libcistern._library import CisternError, library, load_driver
from libcistern._pools import Pool, device_count

VERSION = (1, 22)
NAME = b"mem_handler"
SET_HANDLER = 304  # its place in NumPy's table of functions, in 1.22 and in all of 2


class _Handler(ctypes.Structure):  # PyDataMem_Handler
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("ctx", ctypes.c_void_p)] + [
        (name, ctypes.c_void_p) for name in ("malloc", "calloc", "realloc", "free")]


_kept = {}  # capsules by the pool of their handler


def _set_handler():
    numpy = _frameworks.need("numpy", "pinned()")
    if tuple(map(int, numpy.__version__.split(".")[:2])) < VERSION:
        raise CisternError(f"pinned() needs NumPy {'.'.join(map(str, VERSION))}, but this is {numpy.__version__}")
    try:
        table = numpy._core._multiarray_umath._ARRAY_API
    except AttributeError:
        table = numpy.core.multiarray._ARRAY_API
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    functions = ctypes.cast(pointer(table, None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[SET_HANDLER])


def _handler_of(pool):
    key = pool.handle if pool is not None else None
    if key not in _kept:
        ours = library()
        handler = _Handler(name=b"cistern_pinned", version=1, ctx=key)
        # Arrays refer to it, and some outlive all modules at exit: it is never freed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handler))
        for name in ("malloc", "calloc", "realloc", "free"):
            setattr(handler, name, ctypes.cast(getattr(ours, "cistern_numpy_" + name), ctypes.c_void_p).value)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        _kept[key] = new(ctypes.addressof(handler), NAME, None)
    return _kept[key]


def _try_out(pool):
    """CisternError before any array is made where there is no driver."""
    ours = library()
    load_driver()
    allocate, free = ours.cistern_numpy_malloc, ours.cistern_numpy_free
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    if device_count() == 0:
        raise CisternError("pinned(): no CUDA driver or no device")
    handle = pool.handle if pool is not None else None
    block = allocate(handle, 1)
    if not block:
        raise CisternError(f"pinned(): pinned memory could not be allocated (CUresult {ours.cistern_native_error()})")
    free(handle, block, 1)


def _check(pool):
    if pool is None:
        return
    if not isinstance(pool, Pool):
        raise CisternError(f"pinned() takes a libcistern.Pool of pinned memory or None, not {pool!r}")
    if pool.kind != "pinned":
        raise CisternError(f"pinned() takes a pool of pinned memory, and {pool.name} is one of {pool.kind} memory")
    if not pool.handle:
        raise CisternError(f"pinned(): the pool {pool.name} is closed")


@contextlib.contextmanager
def pinned(pool=None):
    """`pool`: a libcistern.Pool("pinned"), to have figures or a limit of its own; None: one
    named "numpy". CisternError: no driver, no NumPy that can do it, no open pool of pinned memory."""
    _check(pool)
    set_handler = _set_handler()
    _try_out(pool)
    before = set_handler(_handler_of(pool))
    try:
        yield
    finally:
        set_handler(before)
