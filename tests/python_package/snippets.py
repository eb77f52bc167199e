"""The code of a page, block by block."""
import re
from collections import namedtuple

Snippet = namedtuple("Snippet", "line language text uses")
FRAMEWORKS = ("torch", "rmm", "cupy", "numba", "numpy", "pytest")


def snippets_of(page):
    """`uses`: which frameworks a block names."""
    text = page.read_text()
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        uses = {name for name in FRAMEWORKS if re.search(rf"\b{name}\b", block[2], re.I)}
        if "NUMBA" in block[2]:
            uses.add("numba")
        yield Snippet(text.count("\n", 0, block.start()) + 1, block[1], block[2], uses)
