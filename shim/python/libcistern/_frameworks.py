"""The packages that the allocators are for."""
import importlib

from libcistern._library import CisternError


def need(name, for_what):
    """The module; CisternError where it is not there or cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CisternError(f"{for_what} needs {name}, which cannot be imported: {error}") from error
