"""RMM's Python resources over Cistern's. argv[1]: the case. NVIDIA's runtime, which is inside RMM and cuda-bindings,
does not start on the simulated driver: what asks it (which device is current, copies, events) cannot run."""
import sys

import libcistern
import rmm
from rmm.pylibrmm import memory_resource


def of_a_resource():
    memory = libcistern.rmm.resource()
    at = memory.allocate(1000)
    assert memory.cistern_pool.statistics().live_blocks == 1
    memory.deallocate(at, 1000)
    assert memory.allocate(1000) == at, "in the order of the stream"
    buffer = rmm.DeviceBuffer(size=4096, mr=memory)
    assert buffer.size == 4096 and memory.cistern_pool.statistics().live_blocks == 2
    del buffer
    assert memory.cistern_pool.statistics().live_blocks == 1
    try:
        memory.allocate(1 << 50)
    except MemoryError as error:
        assert "pool rmm: out of memory" in str(error)
    else:
        raise AssertionError("there is no so much memory")


def as_upstream():
    memory = libcistern.rmm.resource()
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.LimitingResourceAdaptor(memory, 100000))
    at = counted.allocate(5000)
    assert counted.allocation_counts.current_bytes == 5000
    assert 5000 <= memory.cistern_pool.statistics().live_bytes <= 5120
    counted.deallocate(at, 5000)
    pool = rmm.mr.PoolMemoryResource(memory, initial_pool_size=1 << 20, maximum_pool_size=1 << 24)
    blocks = [pool.allocate(1000 * i) for i in range(1, 20)]
    assert len(set(blocks)) == 19 and memory.cistern_pool.statistics().live_bytes == 1 << 20
    for i, block in enumerate(blocks, 1):
        pool.deallocate(block, 1000 * i)
    del pool
    assert memory.cistern_pool.statistics().live_bytes == 0


def as_the_current_one():
    # What the runtime would say.
    getattr(memory_resource, "_memory_resource", memory_resource).getDevice = lambda: 0
    memory = libcistern.rmm.use()
    assert rmm.mr.get_current_device_resource() is memory
    buffer = rmm.DeviceBuffer(size=1000)
    assert memory.cistern_pool.statistics().live_blocks == 1 and buffer.size == 1000


def beyond_reach():
    """So that a simulator, or a release of RMM, that can do more is noticed."""
    try:
        libcistern.rmm.use()
    except Exception as error:
        assert "cudaErrorNotSupported" in str(error), error
        return
    raise AssertionError("NVIDIA's runtime starts here")


globals()[sys.argv[1]]()
print("done")
