"""The shared object: where it is, and its C interface (cistern/cistern.h, pool.h, plugins.h) by ctypes.

It is, in this order: the preloaded or linked one, the file that LIBCISTERN_LIBRARY names, the one beside this file.
Loaded at the first call that needs it, never at import.
"""
import ctypes
import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
VARIABLE = "LIBCISTERN_LIBRARY"
ONLY_TO_PRELOAD = "cistern_sees_program"  # the library to link has no such function
KINDS = ("host", "opencl", "device", "pinned", "managed")  # cistern_kind
OK, NO_MEMORY, LIMIT = 0, 2, 3  # cistern_status
CURRENT = -1


class CisternError(RuntimeError):
    """What Cistern refused, or cannot do here; the text says why."""


class NotPreloadedError(CisternError):
    """Only what a process does under the preloaded library is seen."""


def library_path():
    """The absolute path of libcistern.so. CisternError: there is none."""
    if _is_in_process():
        return _path_in_process()
    named = os.environ.get(VARIABLE)
    path = pathlib.Path(named) if named else HERE / "libcistern.so"
    if path.is_file():
        return str(path.resolve())
    if named:
        raise CisternError(f"{VARIABLE}={named}: there is no such file")
    raise CisternError(f"libcistern.so is not next to this package ({HERE}): set {VARIABLE} to its path, or preload it")


def is_preloaded():
    """Whether this process runs under the preloaded libcistern.so, and not switched off (CISTERN=off): what it
    allocates is seen."""
    asked = getattr(_process(), ONLY_TO_PRELOAD, None)
    return asked is not None and bool(asked())


def need_preloaded(what):
    if is_preloaded():
        return
    if _is_in_process():
        raise NotPreloadedError(f"{what} needs Cistern to see the program, but here it is switched off (CISTERN=off), "
                                "linked only, or older than this package")
    raise NotPreloadedError(f"{what} needs Cistern to be preloaded: python -m libcistern run -- python ...")


def _is_in_process():
    """Preloaded, on or off, or linked."""
    return hasattr(_process(), "cistern_version")


_loaded = _own_process = None


def _process():
    global _own_process
    if _own_process is None:
        _own_process = ctypes.CDLL(None)
    return _own_process


class _DlInfo(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def _path_in_process():
    info = _DlInfo()
    address = ctypes.cast(_process().cistern_version, ctypes.c_void_p)
    _process().dladdr(address, ctypes.byref(info))
    return os.path.realpath(os.fsdecode(info.file))


def library():
    """The loaded library, its functions with their types."""
    global _loaded
    if _loaded is None:
        if _is_in_process():
            found = _process()
        else:
            path = library_path()
            try:
                found = ctypes.CDLL(path)
            except OSError as error:
                raise CisternError(f"{path} cannot be loaded: {error}") from None
        _loaded = _declare(found)
        if not _is_in_process() and "CISTERN_REPORT" not in os.environ:
            _loaded.cistern_set_option(b"CISTERN_REPORT", b"none")  # nobody asked for a report of this process
    return _loaded


def load_driver():
    """Cistern uses the driver that is loaded, and loads none itself."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass  # the call that needs it says so


def check(status, what):
    """Nothing where a call returned CISTERN_OK."""
    if status == OK:
        return
    code = library().cistern_native_error()
    text = f"{what}: {library().cistern_status_text(status).decode()}" + (f" (native error {code})" if code else "")
    if status in (NO_MEMORY, LIMIT):
        raise MemoryError(text)
    raise CisternError(text)


def kind_number(kind):
    """Of "device" or 2."""
    if kind in KINDS:
        return KINDS.index(kind)
    if isinstance(kind, int) and 0 <= kind < len(KINDS):
        return kind
    raise ValueError(f"unknown kind of memory: {kind!r} (known: {', '.join(KINDS)})")


def c_string(text, what):
    """ctypes would pass what stands before a null byte, and nothing else."""
    if b"\0" in text:
        raise ValueError(f"{what} must not contain null bytes: {text!r}")
    return text


def kinds_of(kinds):
    """Names, of one kind or of several, each once."""
    several = (kinds,) if isinstance(kinds, (str, int)) else kinds
    return tuple(dict.fromkeys(KINDS[kind_number(kind)] for kind in several))


# --- Structs, as the headers have them
def _fields(kind, names):
    return [(name, kind) for name in names.split()]


_U64, _DOUBLE, _SIZE, _INT, _P = ctypes.c_uint64, ctypes.c_double, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
_SIZED = [("struct_bytes", _SIZE)]


class Sized(ctypes.Structure):
    """A struct of the C interface: its first field is its size."""

    def __init__(self, **values):
        super().__init__(ctypes.sizeof(type(self)), **values)


class Figured(Sized):
    """A struct of numbers, which shows them."""

    def as_dict(self):
        return {name: getattr(self, name) for name, _ in self._fields_[1:]}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.as_dict().items())})"


class Statistics(Figured):
    _fields_ = _SIZED + _fields(_U64, "allocations frees pool_hits pool_misses driver_allocs driver_frees live_blocks "
                                      "live_bytes peak_bytes pooled_blocks pooled_bytes largest_pooled_bytes failed")


class Figures(Figured):
    _fields_ = (_SIZED + [("seconds", _DOUBLE)] +
                _fields(_U64, "allocations frees failed pool_hits pool_misses allocated_bytes") +
                _fields(_DOUBLE, "allocations_per_second bytes_per_second hit_rate") +
                _fields(_U64, "live_blocks live_bytes peak_bytes reserved_bytes reserved_peak_bytes free_bytes "
                              "largest_free_bytes") +
                _fields(_DOUBLE, "internal_fragmentation external_fragmentation reserved_per_live_at_peak") +
                _fields(_U64, "worst_reserved_bytes worst_live_bytes") + [("worst_at_seconds", _DOUBLE)])


class MemoryInfo(Figured):
    _fields_ = _SIZED + _fields(_U64, "total_bytes free_bytes live_bytes cached_bytes")


class PoolStatistics(Figured):
    _fields_ = (_SIZED +
                _fields(_U64, "allocations frees failed live_blocks live_bytes peak_bytes allocated_bytes bytes_max "
                              "pool_hits") + _fields(_DOUBLE, "seconds allocations_per_second bytes_per_second") +
                _fields(_U64, "segments segment_bytes segments_made"))


class PoolSettings(Sized):
    _fields_ = _SIZED + [("name", ctypes.c_char_p), ("kind", _INT), ("context", _P), ("flags", _U64),
                ("bytes_max", _SIZE), ("out_of_memory", _P), ("allocated", _P), ("deallocated", _P), ("user", _P),
                ("where", ctypes.c_uint), ("device", _INT), ("node", _INT), ("memory", _INT)]


class Block(ctypes.Structure):
    _fields_ = _SIZED + [("kind", _INT), ("device", _INT), ("address", _P), ("bytes", _U64),
                ("call", ctypes.c_char_p), ("born_seconds", _DOUBLE), ("frames", _P), ("frame_count", _SIZE),
                ("site", ctypes.c_uint32)]


class Frame(ctypes.Structure):
    _fields_ = _SIZED + [("function", ctypes.c_char_p), ("file", ctypes.c_char_p), ("line", ctypes.c_uint),
                ("module", ctypes.c_char_p), ("is_python", _INT)]


VISIT_BLOCK = ctypes.CFUNCTYPE(_INT, ctypes.POINTER(Block), _P)
VISIT_FRAME = ctypes.CFUNCTYPE(_INT, ctypes.POINTER(Frame), _P)
VISIT_POOL = ctypes.CFUNCTYPE(_INT, _P, _SIZE, _P)
VISIT_SEGMENT = ctypes.CFUNCTYPE(_INT, _P, _SIZE, _INT, _P)

_PROTOTYPES = {  # name: (result, arguments)
    "version": (ctypes.c_char_p, []),
    "get_statistics": (_INT, [_INT, ctypes.POINTER(Statistics)]),
    "get_figures": (_INT, [_INT, _INT, ctypes.POINTER(Figures)]),
    "trim": (_INT, [_INT, _SIZE, ctypes.POINTER(_SIZE)]),
    "defragment": (_INT, [_INT, ctypes.POINTER(_SIZE)]),
    "report": (_INT, [ctypes.c_char_p, _INT]),
    "set_option": (_INT, [ctypes.c_char_p, ctypes.c_char_p]),
    "native_error": (_INT, []),
    "status_text": (ctypes.c_char_p, [_INT]),
    "visit": (_INT, [_INT, VISIT_BLOCK, _P]),
    "visit_frames": (_INT, [ctypes.c_uint32, VISIT_FRAME, _P]),
    "device_count": (_INT, [ctypes.POINTER(_INT)]),
    "device_memory": (_INT, [_INT, ctypes.POINTER(MemoryInfo)]),
    "pool_create": (_INT, [ctypes.POINTER(PoolSettings), ctypes.POINTER(_P)]),
    "pool_destroy": (_INT, [_P]),
    "pool_default": (_INT, [_INT, ctypes.POINTER(_P)]),
    "pool_get_statistics": (_INT, [_P, ctypes.POINTER(PoolStatistics)]),
    "pool_visit": (_INT, [_P, VISIT_POOL, _P]),
    "pool_visit_segments": (_INT, [_P, VISIT_SEGMENT, _P]),
    "pool_allocate": (_INT, [_P, _SIZE, _SIZE, ctypes.POINTER(_P)]),
    "pool_deallocate": (_INT, [_P, _P, _P]),
    "pool_allocate_on": (_INT, [_P, _SIZE, _INT, _P, ctypes.POINTER(_P)]),
    "pool_deallocate_on": (_INT, [_P, _P, _P]),
    "torch_use_whole_blocks": (_INT, []),
    "torch_pool": (_INT, [ctypes.POINTER(_P)]),
    "torch_alloc_or_null": (_P, [ctypes.c_ssize_t, _INT, _P]),
}


def _declare(found):
    try:
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(found, "cistern_" + name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise CisternError(f"the loaded Cistern is older than this package: {error}") from None
    return found
