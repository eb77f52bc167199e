"""The CUDA driver by ctypes, as programs without any framework use it; and what the simulated one counts."""
import ctypes
import os

cuda = ctypes.CDLL("libcuda.so.1")
NON_BLOCKING, GEQ, RELAXED, GLOBAL = 1, 0, 2, 0
IS_HOST = 1  # CU_MEMORYTYPE_HOST
NOT_READY = 600


def call(name, *arguments):
    answer = getattr(cuda, name)(*arguments)
    if answer:
        raise RuntimeError(f"{name}: {answer}")


def number(value):
    return ctypes.c_uint64(value)


def begin():
    """A context of the first device is current."""
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def allocate(nbytes):
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
    return pointer.value


def free(pointer):
    call("cuMemFree_v2", number(pointer))


def stream(flags=NON_BLOCKING):
    made = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(made), flags)
    return made.value


def is_idle(of):
    answer = cuda.cuStreamQuery(ctypes.c_void_p(of))
    if answer not in (0, NOT_READY):
        raise RuntimeError(f"cuStreamQuery: {answer}")
    return answer == 0


def synchronise():
    call("cuCtxSynchronize")


class Gate:
    """A stream waits at it until it is opened."""

    def __init__(self):
        self.word = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(self.word), ctypes.c_size_t(8), 0)
        self.value = ctypes.c_uint32.from_address(self.word.value)
        self.value.value = 0

    def hold(self, on):
        call("cuStreamWaitValue32_v2", ctypes.c_void_p(on), number(self.word.value), ctypes.c_uint32(1), GEQ)

    def open(self):
        self.value.value = 1

    def open_later(self, microseconds):
        """By the driver alone: it needs no thread of Python's."""
        other, usleep = ctypes.c_void_p(stream()), ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
        call("cuLaunchHostFunc", other, usleep, ctypes.c_void_p(microseconds))
        call("cuStreamWriteValue32_v2", other, number(self.word.value), ctypes.c_uint32(1), 0)


def is_pinned(address):
    kind = ctypes.c_uint32()
    return cuda.cuPointerGetAttribute(ctypes.byref(kind), 2, number(address)) == 0 and kind.value == IS_HOST


def in_ranges():
    """Device memory is cut from a range: the simulator does not count it as allocations."""
    return os.environ.get("CISTERN_DEVICE_POOL") == "ranges"


def simulated(counter):
    get = cuda.simcuda_get
    get.restype, get.argtypes = ctypes.c_longlong, [ctypes.c_char_p]
    return get(counter.encode())
