"""python -m libcistern ...: hands over to the command `cistern`, which the package brings. `cistern help` says what it
takes."""
import importlib.metadata
import os
import pathlib
import sys

from libcistern._library import HERE, CisternError

VARIABLE = "LIBCISTERN_COMMAND"
NOT_THERE = 2


def command_path():
    """Where the command is: what LIBCISTERN_COMMAND names, else where the package's installation put it. CisternError:
    it is not there."""
    named = os.environ.get(VARIABLE)
    places = [pathlib.Path(named)] if named else []
    try:
        distribution = importlib.metadata.distribution("libcistern")
        places += [pathlib.Path(distribution.locate_file(file)) for file in distribution.files or []
                   if file.name == "cistern"]
    except importlib.metadata.PackageNotFoundError:
        pass
    places.append(HERE.parent / "bin" / "cistern")  # pip install --target
    for path in places:
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.resolve())
    raise CisternError(f"the command cistern is not installed with this package ({HERE}): set {VARIABLE} to its path")


def main():
    try:
        path = command_path()
    except CisternError as error:
        print(f"libcistern: {error}", file=sys.stderr)
        return NOT_THERE
    if (HERE / "libcistern.so").is_file():
        os.environ.setdefault("LIBCISTERN_LIBRARY", str(HERE / "libcistern.so"))
    os.execv(path, ["cistern", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
