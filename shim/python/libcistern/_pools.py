"""Figures of the process's memory and of pools of one's own."""
import ctypes
import os

from libcistern._library import (CURRENT, Figures, MemoryInfo, PoolSettings, PoolStatistics, Statistics, c_string,
                                 check, kind_number, kinds_of, library, load_driver)


def version():
    """Of the library, as "1.2.3"."""
    return library().cistern_version().decode()


def statistics(kind="device"):
    """Counts of one kind ("host", "opencl", "device", "pinned", "managed") since the process started; bytes."""
    found = Statistics()
    check(library().cistern_get_statistics(kind_number(kind), found), f"statistics of {kind}")
    return found


def figures(kind="device", device=None):
    """More of the same, with what the pool has reserved and how it is fragmented; `device`: one of them only. Takes
    milliseconds where a million blocks live."""
    found = Figures()
    check(library().cistern_get_figures(kind_number(kind), -1 if device is None else device, found),
          f"figures of {kind}")
    return found


def memory_info(device=0):
    """Of one device: total_bytes, free_bytes (what is kept for reuse is free), and of this process live_bytes and
    cached_bytes."""
    load_driver()
    found = MemoryInfo()
    check(library().cistern_device_memory(device, found), f"memory of device {device}")
    return found


def trim(kind="device", keep_bytes=0):
    """Gives back what the pool keeps for reuse, until `keep_bytes` are left. The bytes given back."""
    returned = ctypes.c_size_t()
    check(library().cistern_trim(kind_number(kind), keep_bytes, returned), f"trim of {kind}")
    return returned.value


def defragment(kind="device"):
    """Gives back what nobody has used for a second. The bytes given back."""
    returned = ctypes.c_size_t()
    check(library().cistern_defragment(kind_number(kind), returned), f"defragment of {kind}")
    return returned.value


def report(path, format="text"):
    """Writes a report of this moment, as "text" or "json". OSError: an existing file is not overwritten."""
    if format not in ("text", "json"):
        raise ValueError(f"unknown format: {format!r} (known: text, json)")
    if library().cistern_report(c_string(os.fsencode(path), "a path"), int(format == "json")):
        error = library().cistern_native_error()
        raise OSError(error, os.strerror(error), os.fspath(path))


def device_count():
    """0 where there is no driver."""
    count = ctypes.c_int()
    library().cistern_device_count(count)
    return count.value


class Pool:
    """Memory of one kind with a name, a limit and figures of its own, which reports show. Usable from any thread.
    `segments` (device and pinned): the pool cuts its blocks out of large allocations of its own, which takes fewer
    calls of the driver where sizes vary. Otherwise blocks are whole allocations, reused by all pools of the kind."""

    def __init__(self, kind="device", name="pool", bytes_max=0, segments=False):
        load_driver()
        settings = PoolSettings(name=c_string(name.encode(), "a name"), kind=kind_number(kind), bytes_max=bytes_max,
                                memory=int(segments))
        handle = ctypes.c_void_p()
        check(library().cistern_pool_create(settings, handle), f"pool {name}")
        self.handle = handle.value
        self.name, self.kind = name, kinds_of(kind)[0]

    def statistics(self):
        return pool_statistics(self.handle)

    def allocate(self, nbytes, stream=0, device=CURRENT):
        """The address of device memory for work on `stream` (an integer). MemoryError; CisternError: no driver."""
        block = ctypes.c_void_p()
        status = library().cistern_pool_allocate_on(self.handle, nbytes, device, stream, block)
        check(status, f"{nbytes} bytes of pool {self.name}")
        return block.value

    def deallocate(self, address, stream=0):
        """`stream`: whose work, up to now, may still use it."""
        check(library().cistern_pool_deallocate_on(self.handle, address, stream), f"block of pool {self.name}")

    def close(self):
        """CisternError: blocks are alive; nothing has changed."""
        if self.handle:
            check(library().cistern_pool_destroy(self.handle), f"pool {self.name}")
            self.handle = None


def pool_statistics(handle):
    found = PoolStatistics()
    check(library().cistern_pool_get_statistics(handle, found), "statistics of a pool")
    return found
