"""Device memory in the order of a stream: what comes again, when, and to whom. argv[1]: the case."""
import ctypes
import os
import sys
import threading

import driver
from libcistern._library import library

NBYTES = 5000
ours = library()
CUTS_SEGMENTS = not os.environ.get("POOLS_HAVE_WHOLE_BLOCKS")
if not CUTS_SEGMENTS:
    assert ours.cistern_torch_use_whole_blocks() == 0
for name, result, arguments in (("alloc", ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]),
                                ("free", None, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]),
                                ("record_stream", None, [ctypes.c_void_p, ctypes.c_void_p])):
    function = getattr(ours, "cistern_torch_" + name)
    function.restype, function.argtypes = result, arguments


def alloc(on, nbytes=NBYTES):
    return ours.cistern_torch_alloc(nbytes, 0, on)


def free(block, on, nbytes=NBYTES):
    ours.cistern_torch_free(block, nbytes, 0, on)


def same_stream_at_once():
    for on in (driver.stream(), 0):
        gate = driver.Gate()
        block = alloc(on)
        gate.hold(on or 1)
        free(block, on)
        assert alloc(on) == block, "the work of the next one is behind that of the last"
        assert not driver.is_idle(on or 1)
        gate.open()
        driver.synchronise()


def a_larger_one_does():
    on = driver.stream()
    large, smaller = 10 << 20, 9 << 20
    block = alloc(on, large)
    free(block, on, large)
    assert alloc(on, smaller) == block
    assert alloc(on, smaller) != block


def another_stream_waits():
    on, other, gate = driver.stream(), driver.stream(), driver.Gate()
    block = alloc(on)
    gate.hold(on)
    free(block, on)
    for stream in (other, 0):
        assert alloc(stream) != block, "the first stream still uses it"
    assert driver.allocate(NBYTES) != block
    gate.open()


def further_streams_are_waited_for():
    on, other, gate = driver.stream(), driver.stream(), driver.Gate()
    block = alloc(on)
    ours.cistern_torch_record_stream(block, other)
    gate.hold(other)
    free(block, on)
    assert alloc(on) != block, "the other stream still uses it"
    gate.open()
    driver.synchronise()
    assert block in [alloc(on) for _ in range(3)], "and then it does not"


def a_handle_that_comes_again_is_another_stream():
    on, gate = driver.stream(), driver.Gate()
    blocks = [alloc(on) for _ in range(20)]
    gate.hold(on)
    for block in blocks:
        free(block, on)
    driver.call("cuStreamDestroy_v2", ctypes.c_void_p(on))
    streams = [driver.stream() for _ in range(50)]
    assert not {alloc(stream) for stream in streams} & set(blocks), f"{on} came again: {on in streams}"
    gate.open()
    driver.synchronise()
    assert {alloc(streams[0]) for _ in range(30)} & set(blocks), "what it left is for all"


def memory_that_ran_out_is_given_to_others():
    on, other = driver.stream(), driver.stream()
    half = 5 << 30
    block = alloc(on, half)
    free(block, on, half)
    assert alloc(other, half), "what is kept for one stream makes way for another"


def one_that_captures():
    on, graph = driver.stream(), ctypes.c_void_p()
    kept = alloc(on)
    driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(on), driver.RELAXED)
    made = alloc(on)
    assert made and made != kept
    free(kept, on)
    free(made, on)
    driver.call("cuStreamEndCapture", ctypes.c_void_p(on), ctypes.byref(graph))
    assert driver.simulated("invalidated_captures") == 0
    kept, also = alloc(on), alloc(on)
    ours.cistern_torch_record_stream(also, driver.stream())
    driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(on), driver.GLOBAL)
    free(kept, on)
    free(also, on)
    assert driver.simulated("invalidated_captures") == 0, "no call was made"
    assert not alloc(on), "a call of the driver, which such a capture forbids"
    driver.cuda.cuStreamEndCapture(ctypes.c_void_p(on), ctypes.byref(graph))


def unseen_streams():
    """Without the preloaded library: nobody saw the stream begin, so nobody will see it end."""
    on, gate = driver.stream(), driver.Gate()
    block = alloc(on)
    gate.hold(on)
    free(block, on)
    assert not driver.is_idle(on), "nothing waits"
    assert block not in (alloc(on), alloc(0))
    gate.open()
    driver.synchronise()
    assert alloc(on) == block


def threads():
    failures = []

    def work(seed):
        driver.begin()
        on, held = driver.stream(), {}
        for i in range(3000):
            block = alloc(on, 1000 + (i * 7 + seed) % 5 * 1000)
            with lock:
                if block in alive:
                    failures.append(block)
                alive.add(block)
            held[block] = 1000 + (i * 7 + seed) % 5 * 1000
            if len(held) > 20:
                gone = next(iter(held))
                with lock:
                    alive.discard(gone)
                free(gone, on, held.pop(gone))
    lock, alive = threading.Lock(), set()
    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def wrong_ones():
    assert alloc(0, 0) is None and alloc(0, -1) is None
    free(None, 0)
    ours.cistern_torch_record_stream(None, None)
    assert not alloc(0, 1 << 50), "no torch, so no exception"
    assert not ours.cistern_torch_alloc(100, 99, 0), "no such device"
    block = alloc(0)
    free(block, 0)
    free(block, 0)  # says so in a line


driver.begin()
globals()[sys.argv[1]]()
print("done")
