"""Settings of the simulated driver for machines whose copies of mapped files were measured and published, on a slower
scale: the simulator moves the bytes itself, which takes longer than on such machines.

The rates are those of the reports that each entry names, in GiB/s, with weights in the page cache."""
import dataclasses

GIB = 1 << 30
MB = 10 ** 6


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    source: str
    link: float       # copies of pinned memory
    anonymous: float  # the driver's own copies of pageable memory
    file: float       # its copies of mapped files
    coherent: bool    # the device reads the host's page tables
    scale: int        # a second on the machine is so many on the simulator

    def simulator_settings(self):
        """By their names without SIMCUDA_."""
        def mbps(rate):
            return round(rate * GIB / MB / self.scale)

        chosen = {"LINK_TO_DEVICE_MBPS": mbps(self.link), "LINK_TO_HOST_MBPS": mbps(self.link)}
        if self.coherent:
            chosen["COHERENT"] = 1
            chosen["COHERENT_COPY_MBPS"] = mbps(self.anonymous)
        else:  # through the driver's buffer, and then over the link
            chosen["PAGEABLE_COPY_MBPS"] = mbps(1 / (1 / self.anonymous - 1 / self.link))
        if self.file < self.anonymous:
            chosen["FILE_PAGE_NS"] = round(4096 / GIB / self.file * self.scale * 1e9)
        return {name: str(value) for name, value in chosen.items()}


MACHINES = {machine.name: machine for machine in (
    Machine("x86 with PCIe 5", "pegainfer, docs/subsystems/frontend/startup-time.md", link=23, anonymous=7, file=7,
            coherent=False, scale=15),
    Machine("like GB300", "pegainfer #750; vortex #7815", link=190, anonymous=93, file=7.6, coherent=True, scale=125),
    # Nothing is published of its anonymous memory: it is as fast here as the best staged copy was.
    Machine("like GB10", "vcruz305/vllm-exl3 #28", link=27, anonymous=27, file=0.234, coherent=True, scale=18),
)}
