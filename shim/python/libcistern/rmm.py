"""Cistern's pools as a memory resource of RMM.

    import libcistern
    libcistern.rmm.use()                                   # rmm's current resource of this device
    pool = rmm.mr.PoolMemoryResource(libcistern.rmm.resource())     # or the upstream of another one

In the order of RMM's streams: a block that goes back on a stream is given again there immediately.
"""
from libcistern import _frameworks
from libcistern._pools import Pool


def _number(stream):
    """CUstream of what RMM passes: a number, or a Stream of some version."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    return int(getattr(stream, "ptr", 0) or 0)


def resource(pool=None):
    """An rmm.mr.DeviceMemoryResource; `pool`: a libcistern.Pool of device memory, or None for a new one with segments,
    named "rmm". Its attribute `cistern_pool` has the figures."""
    rmm = _frameworks.need("rmm", "libcistern.rmm")
    pool = pool or Pool("device", "rmm", segments=True)

    def allocate(nbytes, stream=None):
        return pool.allocate(nbytes, _number(stream)) if nbytes else 0

    def deallocate(address, nbytes, stream=None):
        if address:
            pool.deallocate(address, _number(stream))

    class CisternMemoryResource(rmm.mr.CallbackMemoryResource):
        """RMM's resource of functions; they belong to it."""
        cistern_pool = pool
    return CisternMemoryResource(allocate, deallocate)


def use(pool=None):
    """Makes such a resource the current one of the current device, and returns it."""
    made = resource(pool)
    _frameworks.need("rmm", "libcistern.rmm").mr.set_current_device_resource(made)
    return made
