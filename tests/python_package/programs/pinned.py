"""NumPy arrays in pinned memory. argv[1]: the case."""
import contextlib
import contextvars
import ctypes
import gc
import sys
import threading

import driver
import libcistern
import numpy


def is_pinned(array):
    return driver.is_pinned(array.ctypes.data)


def live():
    gc.collect()
    return libcistern.statistics("pinned").live_blocks


def inside_and_outside():
    before = numpy.ones(1000)
    with libcistern.pinned():
        made = numpy.arange(1000.0)
        derived = made * 2 + before
        view = made[10:20]
        empty, nothing = numpy.empty((0, 5)), numpy.array(7)
    after = numpy.ones(1000)
    assert [is_pinned(a) for a in (before, made, derived, view, after)] == [False, True, True, True, False]
    assert derived[10] == 21 and empty.size == 0 and nothing == 7
    made.resize(100000, refcheck=False)  # outside, by the functions that it was made with
    assert is_pinned(made) and made[999] == 999 and made[99999] == 0
    assert live() >= 2
    del made, derived, view, empty, nothing
    assert live() == 0


def zeros_of_used_memory():
    with libcistern.pinned():
        numpy.full(5000, 255, dtype=numpy.uint8)
        assert not numpy.zeros(5000, dtype=numpy.uint8).any()


def nested_and_after_an_error():
    own = libcistern.Pool("pinned", "mine")
    with libcistern.pinned():
        with libcistern.pinned(own):
            inner = numpy.empty(100)
        outer = numpy.empty(100)
        with contextlib.suppress(KeyError), libcistern.pinned(own):
            raise KeyError
        assert is_pinned(numpy.empty(100))
    assert own.statistics().live_blocks == 1 and is_pinned(outer)
    del inner
    assert own.statistics().live_blocks == 0
    own.close()


def as_numpys_context():
    """A handler is of a context: another thread, or another context, has its own."""
    seen = []
    with libcistern.pinned():
        thread = threading.Thread(target=lambda: seen.append(is_pinned(numpy.empty(100))))
        thread.start()
        thread.join()
        seen.append(contextvars.Context().run(lambda: is_pinned(numpy.empty(100))))
        seen.append(contextvars.copy_context().run(lambda: is_pinned(numpy.empty(100))))
    assert seen == [False, False, True], seen


def freed_by_another_thread():
    with libcistern.pinned():
        arrays = [numpy.empty(1000 + i) for i in range(100)]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert live() == 0


def beyond_a_limit():
    own = libcistern.Pool("pinned", "small", bytes_max=10000)
    with libcistern.pinned(own):
        kept = numpy.empty(8000, dtype=numpy.uint8)
        try:
            numpy.empty(8000, dtype=numpy.uint8)
        except MemoryError:
            assert own.statistics().failed == 1 and kept.size == 8000
            return
    raise AssertionError("more than the limit")


def copy_under_way(flags, pool=None):
    """Memory that a copy still reads is not given again. Where the streams are not seen the free waits for them."""
    on, gate, target = driver.stream(flags), driver.Gate(), driver.allocate(100000)
    with libcistern.pinned(pool):
        first = numpy.full(100000, 1, dtype=numpy.uint8)
        gate.hold(on)
        driver.call("cuMemcpyHtoDAsync_v2", driver.number(target), ctypes.c_void_p(first.ctypes.data),
                    ctypes.c_size_t(100000), ctypes.c_void_p(on))
        gate.open_later(300_000)
        del first
        assert libcistern.is_preloaded() != driver.is_idle(on), "waits just where it must"
        second = numpy.full(100000, 2, dtype=numpy.uint8)
    driver.synchronise()
    back = numpy.empty(100000, dtype=numpy.uint8)
    driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(back.ctypes.data), driver.number(target), ctypes.c_size_t(100000))
    assert (back == 1).all() and (second == 2).all()


def a_copy_under_way():
    copy_under_way(driver.NON_BLOCKING)


def a_copy_on_a_blocking_stream():
    copy_under_way(0)


def a_copy_from_a_pool_of_ones_own():
    copy_under_way(driver.NON_BLOCKING, libcistern.Pool("pinned", "own"))


def outlives_all_modules():
    """At exit the memory of what modules held is used again before these go."""
    class Keeper:
        def __init__(self, array):
            self.array = array

        def __del__(self):
            self.others = [b"x" * (120 + i % 100) for i in range(20000)]
    with libcistern.pinned():
        sys.kept = Keeper(numpy.ones(1000))


def is_kept_by_a_module():
    with libcistern.pinned():
        sys.kept = numpy.ones(1000)


if sys.argv[1] != "inside_and_outside":
    driver.begin()  # else there is no context yet
globals()[sys.argv[1]]()
print("done")
