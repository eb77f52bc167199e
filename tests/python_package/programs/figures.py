"""Figures against what the simulated driver counts, reports, and what goes back. argv[1]: a folder."""
import json
import pathlib
import sys

import driver
import libcistern

folder = pathlib.Path(sys.argv[1])
driver.begin()
blocks = [driver.allocate(2 << 20) for _ in range(5)]
for block in blocks[:3]:
    driver.free(block)
device = libcistern.statistics("device")
assert (device.allocations, device.frees, device.live_blocks, device.live_bytes) == (5, 3, 2, 4 << 20), device
assert device.peak_bytes == 10 << 20 and device.pooled_bytes == 6 << 20, device
assert driver.simulated("live_allocations") == 5, "three of them are kept"
more = libcistern.figures("device", 0)
assert (more.live_bytes, more.reserved_bytes, more.reserved_peak_bytes) == (4 << 20, 10 << 20, 10 << 20), more
assert libcistern.figures("device", 1).live_bytes == 0
assert libcistern.trim("device", keep_bytes=2 << 20) == 4 << 20
assert driver.simulated("live_allocations") == 3
assert libcistern.trim("device") == 2 << 20 and libcistern.defragment("device") == 0
info = libcistern.memory_info(0)
assert (info.live_bytes, info.cached_bytes, info.total_bytes - info.free_bytes) == (4 << 20, 0, 4 << 20), info

libcistern.report(folder / "report.txt")
libcistern.report(folder / "report.json", "json")
assert "device:0" in (folder / "report.txt").read_text()
kinds = json.loads((folder / "report.json").read_text())["kinds"]
assert kinds["device:0"]["live_bytes"] == 4 << 20, kinds["device:0"]

for wrong, error in ((lambda: libcistern.report(folder / "report.txt"), FileExistsError),
                     (lambda: libcistern.report(folder / "none" / "report"), FileNotFoundError),
                     (lambda: libcistern.report(folder / "other", "xml"), ValueError),
                     (lambda: libcistern.statistics("disk"), ValueError),
                     (lambda: libcistern.figures("device", 99), libcistern.CisternError),
                     (lambda: libcistern.Pool("disk"), ValueError),
                     (lambda: libcistern.nothing, AttributeError)):
    try:
        wrong()
    except error:
        continue
    raise AssertionError(f"no {error.__name__}")

pool = libcistern.Pool("device", "mine", bytes_max=10000)
address = pool.allocate(6000)
try:
    pool.allocate(6000)
except MemoryError as error:
    assert "limit of the pool" in str(error)
try:
    pool.close()
except libcistern.CisternError as error:
    assert "still in use" in str(error)
pool.deallocate(address)
assert pool.statistics().peak_bytes == 6000 and pool.statistics().failed == 1
pool.close()
print(libcistern.version())
