"""Cistern for Python: where the object to preload lies."""
import pathlib


def library_path():
    """The absolute path of libcistern.so, for LD_PRELOAD."""
    return str(pathlib.Path(__file__).resolve().parent / "libcistern.so")
