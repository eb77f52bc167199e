"""What a block of code leaked: live blocks before and after, told apart by address and birth, by the site that
allocated them. Caches of frameworks that keep memory for themselves are emptied first: what they still hold is in
use."""
import contextlib
import ctypes
import gc
import itertools
import os
import sys

from libcistern._library import HERE, VISIT_BLOCK, VISIT_FRAME, kind_number, kinds_of, library, need_preloaded

GPU_KINDS = ("device", "pinned", "managed", "opencl")


class Line:
    """One call of a stack. `file` and `line`: None and 0 where nobody knows them."""

    def __init__(self, function, file, line, is_python):
        self.function, self.file, self.line, self.is_python = function, file, line, is_python

    def __repr__(self):
        where = f"{self.file}:{self.line}" if self.line else self.file or "?"
        return f"{self.function or '?'} ({where})"


class Leak:
    """Blocks of one kind that one site allocated and nobody freed. `stack`: innermost first."""

    def __init__(self, kind, call, site):
        self.kind, self.call, self.blocks, self.bytes = kind, call, 0, 0
        self.stack = stack_of(site)

    def where(self, file=None):
        """The innermost line in `file`, else in a script that is not of an installed package, else of all."""
        for wanted in (lambda line: file is not None and line.file == file,
                       lambda line: line.file and line.is_python and "site-packages" not in line.file,
                       lambda line: line.file):
            for line in self.stack:
                if wanted(line):
                    return line
        return None

    def __repr__(self):
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        where = self.where() or "an unknown site"
        return f"{self.bytes} bytes of {self.kind} memory in {blocks} ({self.call}) at {where}"


def live_blocks(kind):
    """(address, bytes, birth in seconds, call, site, device) of each block that is alive. Of host memory: those whose
    site was kept."""
    found = []

    def visit(block, _):
        of = block.contents
        found.append((of.address, of.bytes, of.born_seconds, of.call, of.site, of.device))
        return 0
    library().cistern_visit(kind_number(kind), VISIT_BLOCK(visit), None)
    return found


def stack_of(site):
    """The calls, innermost first, without those of this package."""
    lines = []

    def visit(frame, _):
        of = frame.contents
        name, file = (text.decode(errors="replace") if text else None for text in (of.function, of.file or of.module))
        lines.append(Line(name, file, of.line, bool(of.is_python)))
        return 0
    if site:
        library().cistern_visit_frames(site, VISIT_FRAME(visit), None)
    return list(itertools.dropwhile(lambda line: line.file and line.file.startswith(f"{HERE}{os.sep}"), lines))


def empty_caches():
    """Of what is garbage, and of frameworks in this process."""
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.get_allocator_backend() != "pluggable":
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def seen(kinds):
    return {(kind, *block[:3]) for kind in kinds for block in live_blocks(kind)}


def leaks_since(before, kinds, among=None):
    """Sites of blocks that are alive and not among `before`, most bytes first. `among`: blocks that may count."""
    by_site = {}
    for kind in kinds:
        for address, size, born, call, site, _ in live_blocks(kind):
            key = (kind, address, size, born)
            if key in before or (among is not None and key not in among):
                continue
            origin = (kind, call, site)
            if origin not in by_site:
                by_site[origin] = Leak(kind, call.decode() if call else "?", site)
            by_site[origin].blocks += 1
            by_site[origin].bytes += size
    return sorted(by_site.values(), key=lambda leak: -leak.bytes)


@contextlib.contextmanager
def leaks(kinds=GPU_KINDS):
    """with leaks() as found: ...   fills the list `found` when the block ends: a Leak for each site. `kinds`: one, or
    several. Other threads' blocks count too. NotPreloadedError: nothing is seen without the preloaded library."""
    kinds = kinds_of(kinds)
    need_preloaded("leaks()")
    empty_caches()
    before = seen(kinds)
    found = []
    try:
        yield found
    finally:
        empty_caches()
        found[:] = leaks_since(before, kinds)
