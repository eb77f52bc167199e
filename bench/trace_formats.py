#!/usr/bin/python3
"""Turns logs of other allocators into lifetimes of buffers, which bench/replay reads.

    bench/trace_formats.py LOG OUT.csv

LOG is one of these, as its first bytes tell:

   RMM      the CSV of its logging adaptor (Thread,Time,Action,Pointer,Size,Stream)
   Umpire   its replay log, a JSON object in each line: the form since 2022 ("category", "name") or the one before
            ("kind", "event")
   PyTorch  the pickle of a memory snapshot (device_traces); of several devices, the one with the most events
   ours     id,lower,upper,size[,stream[,freed_on]], which is left as it is

A buffer that is still live at the end lives to the last step. A log may begin late, or lack a free: those are counted
and said.
A log that cannot be read ends with one line, which names the place."""
import csv
import json
import pathlib
import pickle
import sys

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import traces

NO_POINTER = {0, None}


class Malformed(Exception):
    """FILE:LINE: why."""


class Log:
    """Allocations and frees by pointer, in order, become lifetimes."""

    def __init__(self, path):
        self.path, self.maker, self.live, self.streams = path, traces.Maker(), {}, {}
        self.unknown_frees = self.missing_frees = 0

    def malformed(self, line, why):
        return Malformed(f"{self.path}:{line}: {why}")

    def stream(self, name):
        return self.streams.setdefault(name, len(self.streams))

    def allocate(self, pointer, size, stream=0):
        if pointer in self.live:
            self.missing_frees += 1
            self.free(pointer)
        self.live[pointer] = self.maker.allocate(size, self.stream(stream)) if size else None

    def free(self, pointer, stream=None):
        if pointer not in self.live:
            self.unknown_frees += 1
            return
        block = self.live.pop(pointer)
        if block is not None:
            self.maker.free(block, None if stream is None else self.stream(stream))

    def finished(self):
        if not self.maker.rows:
            raise self.malformed(1, "nothing is allocated")
        for count, what in ((self.unknown_frees, "frees of memory that was allocated before the log began"),
                            (self.missing_frees, "allocations where the log has memory already")):
            if count:
                print(f"{self.path}: {count} {what}", file=sys.stderr)
        return self.maker.finished()


def hexadecimal(text):
    return 0 if text in ("(nil)", "(null)", "nullptr") else int(text, 16)


# --- RMM

def read_rmm(path):
    log = Log(path)
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            try:
                action, size = row["Action"], int(row["Size"])
                pointer, stream = hexadecimal(row["Pointer"]), int(row["Stream"], 16)
            except (KeyError, TypeError, ValueError):
                raise log.malformed(rows.line_num, "a line is Thread,Time,Action,Pointer,Size,Stream") from None
            if action not in ("allocate", "free", "allocate failure") or size < 0:
                raise log.malformed(rows.line_num, f"{action!r} of {size} bytes: actions are allocate, free and "
                                                   "allocate failure")
            if pointer and action == "allocate":
                log.allocate(pointer, size, stream)
            elif pointer and action == "free":
                log.free(pointer, stream)
    return log.finished()


# --- Umpire

class Umpire:
    """Events of both forms. A reallocate may have its own allocate and deallocate inside; where it has not, the memory
    was replaced without them."""

    def __init__(self, log):
        self.log, self.inside = log, {}  # inside: by rank, the reallocate that has begun

    def allocate(self, rank, pointer, size):
        if pointer in NO_POINTER:
            return
        self.log.allocate((rank, pointer), size)
        if rank in self.inside:
            self.inside[rank]["allocated"] = True

    def deallocate(self, rank, pointer):
        if pointer not in NO_POINTER:
            self.log.free((rank, pointer))

    def reallocate_begins(self, rank, pointer, size):
        self.inside[rank] = {"pointer": pointer, "size": size, "allocated": False}

    def reallocate_ends(self, rank, pointer):
        begun = self.inside.pop(rank, None)
        if begun is None or begun["allocated"]:
            return
        if (rank, begun["pointer"]) in self.log.live:
            self.log.free((rank, begun["pointer"]))
        self.allocate(rank, pointer, begun["size"])


def umpire_event(umpire, event):
    """The form since 2022."""
    words, numbers = event.get("string_args", {}), event.get("numeric_args", {})
    name = event["name"]
    if name == "reallocate":
        if "new_ptr" in words:
            umpire.reallocate_ends(0, hexadecimal(words["new_ptr"]))
        else:
            umpire.reallocate_begins(0, hexadecimal(words["current_ptr"]), int(numbers["size"]))
    elif event.get("tags", {}).get("replay") != "true":
        return
    elif name in ("allocate", "named_allocate"):
        umpire.allocate(0, hexadecimal(words["pointer"]), int(numbers["size"]))
    elif name == "deallocate":
        umpire.deallocate(0, hexadecimal(words["pointer"]))


def umpire_event_before_2022(umpire, event):
    """Each allocate and reallocate comes twice: before it is done, and then with its result."""
    rank, name, given = event.get("uid", 0), event["event"], event.get("payload", {})
    done = event.get("result")
    if name in ("allocate", "named_allocate") and done:
        umpire.allocate(rank, hexadecimal(done["memory_ptr"]), int(given["size"]))
    elif name == "deallocate":
        umpire.deallocate(rank, hexadecimal(given["memory_ptr"]))
    elif name == "reallocate" and done:
        umpire.reallocate_ends(rank, hexadecimal(done["memory_ptr"]))
    elif name == "reallocate":
        umpire.reallocate_begins(rank, hexadecimal(given["ptr"]), int(given["size"]))


def read_umpire(path):
    log = Log(path)
    umpire = Umpire(log)
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                event = json.loads(line)
                if "kind" in event:
                    umpire_event_before_2022(umpire, event)
                else:
                    umpire_event(umpire, event)
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise log.malformed(number, f"no event of Umpire ({type(error).__name__}: {error})") from None
    return log.finished()


# --- PyTorch

class Plain(pickle.Unpickler):
    """Lists, dicts, words and numbers. A snapshot has nothing else; a pickle that names a function would call it."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a snapshot names nothing")

    def persistent_load(self, _):
        raise pickle.UnpicklingError("it refers to something outside, and a snapshot does not")


def read_torch(path):
    log = Log(path)
    try:
        with open(path, "rb") as file:
            devices = Plain(file).load()["device_traces"]
        events = max(devices, key=len)
        for event in events:
            if event["action"] == "alloc":
                log.allocate(int(event["addr"]), int(event["size"]), event["stream"])
            elif event["action"] == "free_requested":
                log.free(int(event["addr"]))
    except (pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError,
            TypeError, ValueError) as error:
        raise log.malformed(1, f"no memory snapshot of PyTorch ({type(error).__name__}: {error})") from None
    return log.finished()


# --- Which it is

def rows_of(path):
    """The lifetimes of a log; None: the file has lifetimes already."""
    try:
        with open(path, "rb") as file:
            begin = file.read(65536)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror}") from None
    if begin.startswith(b"\x80"):
        return read_torch(path)
    lines = [line for line in begin.splitlines() if line.strip() and not line.startswith(b"#")]
    first = lines[0] if lines else b""
    if first.startswith(b"{"):
        return read_umpire(path)
    if b"Action" in first.split(b","):
        return read_rmm(path)
    if first.startswith(b"id,lower,upper,size"):
        return None
    raise Malformed(f"{path}:1: neither a log of RMM, Umpire or PyTorch nor lifetimes (id,lower,upper,size)")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        rows = rows_of(sys.argv[1])
    except Malformed as why:
        sys.exit(str(why))
    if rows is None:
        sys.exit(f"{sys.argv[1]} has lifetimes already")
    traces.write(sys.argv[2], rows)


if __name__ == "__main__":
    main()
