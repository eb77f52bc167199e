"""cuda-bindings and cuda-core under Cistern. argv[1]: the case."""
import gc
import sys

import driver as simulated
import libcistern


def bindings():
    from cuda.bindings import driver
    assert driver.cuInit(0)[0] == 0
    _, context = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(context)
    _, block = driver.cuMemAlloc(1000)
    assert libcistern.statistics("device").live_bytes == 1000
    driver.cuMemFree(block)
    _, again = driver.cuMemAlloc(1000)
    assert int(again) == int(block) and simulated.simulated("allocs") == (not simulated.in_ranges())
    _, pinned = driver.cuMemHostAlloc(1000, 0)
    assert pinned and libcistern.statistics("pinned").live_bytes == 1000


def core():
    from cuda.core import Device
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    memory = libcistern.cuda_core.resource(0)
    buffer = memory.allocate(5000, stream=stream)
    at = int(buffer.handle)
    assert memory.cistern_pool.statistics().live_bytes == 5000 and buffer.is_device_accessible
    gate = simulated.Gate()
    gate.hold(int(stream.handle))
    buffer.close(stream)
    assert int(memory.allocate(5000, stream=stream).handle) == at, "behind the first one's work"
    gate.open()
    device.memory_resource = memory
    kept = device.allocate(100, stream=stream)
    gc.collect()
    assert memory.cistern_pool.statistics().live_bytes == 100 and kept.size == 100
    memory.allocate(0, stream=stream).close()


globals()[sys.argv[1]]()
print("done")
