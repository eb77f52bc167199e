"""Libraries that lack a function, made of those that have it.

    without_symbol.py LIBRARY NAME NEW_LIBRARY"""
import pathlib
import struct
import sys

DYNAMIC_SYMBOLS = 11  # a section's type


def without(library, name):
    """The bytes of a library, an ELF file of 64 bits, with the exported name beginning one letter later in it; None if
    it exports no such name."""
    contents = bytearray(library)
    sections_at, = struct.unpack_from("<Q", contents, 40)
    size, count = struct.unpack_from("<HH", contents, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", contents, sections_at + i * size) for i in range(count)]
    symbols = next(section for section in sections if section[1] == DYNAMIC_SYMBOLS)
    strings_at, wanted = sections[symbols[6]][4], name.encode() + b"\0"
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name_at, = struct.unpack_from("<I", contents, at)
        if contents.startswith(wanted, strings_at + name_at):
            struct.pack_into("<I", contents, at, name_at + 1)
            return bytes(contents)
    return None


if __name__ == "__main__":
    made = pathlib.Path(sys.argv[3])
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(without(pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[2]))
