"""Paths that tools stumble over: odd letters, no UTF-8, and lengths up to what the system takes."""
import os
import pathlib

NAMES = ["with space", 'quote"d', "it's", "back\\slash", os.fsdecode(b"\xff\xfe not UTF-8"), "tab\tand\nline", "ü€日本",
         ",:;|&$`*?", "-o", "a" * 255]
PATH_MAX = 4095  # Linux's, without the zero at its end


def long_path(folder, length):
    """A path of so many bytes in folders that are made for it below this one."""
    path = str(folder)
    while length - len(path) > 256:
        path += "/" + "d" * 100
    os.makedirs(path, exist_ok=True)
    return path + "/" + "f" * (length - len(path) - 1)


def paths_in(folder):
    folder = pathlib.Path(folder)
    return [str(folder / name) for name in NAMES] + [long_path(folder, length) for length in (1000, 4000, PATH_MAX)]
