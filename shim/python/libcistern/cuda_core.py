"""Cistern's pools as a memory resource of cuda.core.

    import libcistern
    device.memory_resource = libcistern.cuda_core.resource(device.device_id)

In the order of the stream that cuda.core passes.
"""
from libcistern import _frameworks
from libcistern._pools import Pool


def resource(device=0, pool=None):
    """A cuda.core.MemoryResource of one device; `pool`: a libcistern.Pool of device memory, or None for a new one named
    "cuda.core". Its attribute `cistern_pool` has the figures."""
    core = _frameworks.need("cuda.core", "libcistern.cuda_core")
    made_in = pool or Pool("device", "cuda.core")

    class CisternMemoryResource(core.MemoryResource):
        """Blocks are whole allocations of the driver's."""
        cistern_pool = made_in
        device_id = device
        is_device_accessible = True
        is_host_accessible = False

        def allocate(self, size, *, stream=None):
            number = int(stream.handle) if stream is not None else 0
            address = made_in.allocate(size, number, device) if size else 0
            return core.Buffer.from_handle(address, size, self, stream=stream)

        def deallocate(self, ptr, size, *, stream=None):
            if int(ptr):
                made_in.deallocate(int(ptr), int(stream.handle) if stream is not None else 0)
    return CisternMemoryResource()
