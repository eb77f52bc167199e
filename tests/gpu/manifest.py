#!/usr/bin/python3
"""Writes manifest.json of a prepared folder: every binary, its size, and the newest version of the C library that it
needs. Says the whole's size and the binaries that need the newest."""
import json
import pathlib
import re
import subprocess
import sys


def newest_glibc(path):
    """As a tuple of numbers; empty for a file that is no ELF binary or needs none."""
    listing = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True)
    versions = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", listing.stdout)
    return max((tuple(map(int, version.split("."))) for version in versions), default=())


def main():
    folder = pathlib.Path(sys.argv[1])
    files, total, needed = [], 0, {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == "manifest.json":
            continue
        version = newest_glibc(path)
        total += path.stat().st_size
        files.append({"path": str(path.relative_to(folder)), "bytes": path.stat().st_size,
                      "glibc": ".".join(map(str, version))})
        if version:
            needed.setdefault(version, []).append(files[-1]["path"])
    (folder / "manifest.json").write_text(json.dumps({"bytes": total, "files": files}, indent=1) + "\n")
    for version, paths in sorted(needed.items(), reverse=True):
        print(f"glibc {'.'.join(map(str, version))} or later: {len(paths)} files, {', '.join(paths[:4])}"
              f"{', ...' if len(paths) > 4 else ''}")
    print(f"{len(files)} files, {total / 1048576:.1f} MiB in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
