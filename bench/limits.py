#!/usr/bin/python3
"""What programs get of their memory under limits that they set, and what mlockall locks, beside plain and peers.

    bench/limits.py [SHIM]

MB of blocks, of which the first byte is written, until malloc refuses; MB that are locked. `start`: the limit was set
before the program was started. Needs gcc; peers are Debian's libjemalloc2 and libtcmalloc-minimal4, where installed."""
import argparse
import ctypes.util
import os
import pathlib
import resource
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = [(kind, limit, size)
        for size in (100_000, 40_000, 1000, 64)
        for kind, limits in (("as", (200, 500, 1000, 2000)), ("data", (200, 1000)), ("start", (200, 1000)))
        for limit in limits]


def measured(program, arguments, environment, limit_mib=None):
    def limited():
        if limit_mib:
            resource.setrlimit(resource.RLIMIT_AS, (limit_mib << 20,) * 2)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_PRELOAD"))}
    done = subprocess.run([str(program), *map(str, arguments)], env=kept | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, preexec_fn=limited)
    return done.stdout.decode().strip() if done.returncode == 0 else f"exit {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shim", nargs="?", type=pathlib.Path, default=ROOT / "build" / "release" / "libcistern.so")
    shim = str(parser.parse_args().shim.resolve())
    ways = {"plain": {}}
    for peer in ("jemalloc", "tcmalloc_minimal"):
        if library := ctypes.util.find_library(peer):
            ways[peer] = {"LD_PRELOAD": library}
    ways |= {"preloaded": {"LD_PRELOAD": shim}, "all sites": {"LD_PRELOAD": shim, "CISTERN_SITES": "all"}}
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "limits"
        subprocess.run(["gcc", "-O1", "-fno-builtin-malloc", str(ROOT / "bench" / "limits.c"), "-o", str(program)],
                       check=True)
        print(f"{'limit, MiB, bytes of a block':32}" + "".join(f"{way:>18}" for way in ways))
        for kind, limit, size in ROWS:
            print(f"{kind:8}{limit:12}{size:12}" +
                  "".join(f"{measured(program, (kind, limit, size), way, limit if kind == 'start' else None):>18}"
                          for way in ways.values()), flush=True)
        print(f"{'mlockall':32}" + "".join(f"{measured(program, ('locked',), way):>18}" for way in ways.values()))


if __name__ == "__main__":
    main()
