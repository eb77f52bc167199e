"""reuse.py: code objects that take each other's place: the same addresses of code, name, file and table of lines, but
something else in one of them. Prints the line of each block that such code made."""
import json
import os
import sys

WANTED, TRIES = 6, 60000
kept, expected, seen = [], {}, {}


def made(number, way):
    """A function that lives for one call, which allocates."""
    file = f"<file {number:05d}>" if way == 0 else "<same>"
    name = f"f{number:05d}" if way == 1 else "f"
    blank = "\n" * (number % 997 if way == 2 else 0)
    scope = {}
    source = f"def {name}(n):\n    x = 1\n{blank}    return bytearray(1_000_000 + 16 * n)\n"
    exec(compile(source, file, "exec"), scope)
    return scope[name], (name, file, 3 + len(blank))


def place(function):
    code = function.__code__
    table = code.co_lnotab if sys.version_info < (3, 10) else code.co_linetable
    return id(code), id(code.co_name), id(code.co_filename), id(table)


def try_once(number):
    """Whether another function was there that said something else. No string of either is kept."""
    function, line = made(number, number // 1000 % 3)
    key, says = place(function), hash(line)
    block = function(number)
    if seen.setdefault(key, says) == says:
        return
    seen[key] = says
    kept.append(block)
    expected[number] = [line[0] + "", line[1] + "", line[2]]


for number in range(TRIES):
    try_once(number)
    if len(kept) == WANTED:
        break
json.dump(expected, sys.stdout)
sys.stdout.flush()
os._exit(0)  # nothing is freed
