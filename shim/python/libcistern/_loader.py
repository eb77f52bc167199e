"""Which loader starts a program, as its file says: one that is not glibc's cannot load libcistern.so, and ends the
program that has it preloaded."""
import os
import shutil
import struct

SCRIPTS_MAX = 8  # the kernel gives up after five
PT_INTERP = 3


def _interpreter(file):
    """That of an ELF file, by its program headers; None: it names none, or this is no such file."""
    start = file.read(64)
    if len(start) < 52 or not start.startswith(b"\x7fELF") or start[4] not in (1, 2) or start[5] not in (1, 2):
        return None
    order, has_64_bits = "<>"[start[5] - 1], start[4] == 2
    if has_64_bits and len(start) < 64:
        return None
    headers, = struct.unpack_from(order + ("Q" if has_64_bits else "I"), start, 32 if has_64_bits else 28)
    size, count = struct.unpack_from(order + "HH", start, 54 if has_64_bits else 42)
    for number in range(count):
        file.seek(headers + number * size)
        header = file.read(56 if has_64_bits else 32)
        if len(header) < (56 if has_64_bits else 32):
            return None
        if struct.unpack_from(order + "I", header)[0] != PT_INTERP:
            continue
        offset, = struct.unpack_from(order + ("Q" if has_64_bits else "I"), header, 8 if has_64_bits else 4)
        length, = struct.unpack_from(order + ("Q" if has_64_bits else "I"), header, 32 if has_64_bits else 16)
        file.seek(offset)
        return os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
    return None


def _script(first_line):
    """The words after `#!`."""
    return os.fsdecode(first_line[2:].strip()).split(None, 1)


def _program_of(path):
    """Where scripts, and `env NAME` in their first lines, lead to."""
    for _ in range(SCRIPTS_MAX):
        with open(path, "rb") as file:
            first_line = file.read(4096).split(b"\n")[0]
        if not first_line.startswith(b"#!"):
            return path
        words = _script(first_line)
        if not words:
            return path
        path = words[0]
        if os.path.basename(path) == "env" and len(words) == 2 and words[1][0] not in "-/" and "=" not in words[1]:
            path = shutil.which(words[1].split()[0]) or path
    return path


def foreign_loader(path):
    """The loader of the program behind that path, where it is not glibc's; None: it is, or there is none, or that
    cannot be seen."""
    try:
        with open(_program_of(path or ""), "rb") as file:
            loader = _interpreter(file)
        if not loader or not os.path.exists(loader):
            return None
        with open(loader, "rb") as file:
            return None if b"GLIBC_PRIVATE" in file.read() else loader
    except (OSError, ValueError, OverflowError):
        return None
