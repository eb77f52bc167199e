"""What leaks() finds. argv[1]: the case."""
import contextlib
import sys

import driver
import libcistern

driver.begin()


def forget(nbytes):
    driver.allocate(nbytes)  # the line that leaks


LINE = forget.__code__.co_firstlineno + 1


def names_the_line():
    kept = driver.allocate(100)
    with libcistern.leaks() as found:
        forget(5000)
        forget(7000)
        freed = driver.allocate(3000)
        driver.free(freed)
        driver.free(kept)
    # Two calls, so two sites, which agree in their innermost line.
    assert [(leak.kind, leak.bytes, leak.blocks, leak.call) for leak in found] == [
        ("device", 7000, 1, "cuMemAlloc_v2"), ("device", 5000, 1, "cuMemAlloc_v2")], found
    for leak in found:
        assert leak.where(__file__).line == LINE and leak.where(__file__).function == "forget", leak.stack
        assert [line.function for line in leak.stack][-3:] == ["forget", "names_the_line", "<module>"], leak.stack


def in_a_loop_one_site():
    with libcistern.leaks() as found:
        for _ in range(10):
            forget(100)
    assert [(leak.bytes, leak.blocks) for leak in found] == [(1000, 10)], found


def nothing():
    with libcistern.leaks() as found:
        driver.free(driver.allocate(100))
    assert found == []


def after_an_error():
    with contextlib.suppress(KeyError), libcistern.leaks() as found:
        forget(100)
        raise KeyError
    assert len(found) == 1


def garbage_is_no_leak():
    class Buffer:
        def __init__(self):
            self.pointer, self.itself = driver.allocate(100), self

        def __del__(self):
            driver.free(self.pointer)
    with libcistern.leaks() as found:
        Buffer()
    assert found == []


def pinned_too():
    with libcistern.leaks(["pinned"]) as found:
        kept = driver.Gate()
        forget(100)
    assert [leak.kind for leak in found] == ["pinned"] and kept


globals()[sys.argv[1]]()
print("done")
