"""interpreters.py LIBRARY: allocates in sub-interpreters, with the GIL and without; says which could be made."""
import sys

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
def inner(number):
    import sys
    if number % 2:
        keep = sys.modules.setdefault("kept", [])
        keep.append(bytearray(1000000 + 16 * number))
    else:
        import ctypes
        ctypes.CDLL(LIBRARY).probe(number)
def outer(number):
    inner(number)
outer(NUMBER)
"""


def main_function(number):
    one = interpreters.create("legacy") if sys.version_info >= (3, 13) else (
        interpreters.create(isolated=False) if sys.version_info >= (3, 9) else interpreters.create())
    code = CODE.replace("LIBRARY", repr(sys.argv[1])).replace("NUMBER", str(number))
    (interpreters.exec if sys.version_info >= (3, 13) else interpreters.run_string)(one, code)
    made.append(one)


made = []
for number in range(4):
    main_function(number)
print(len(made))
sys.stdout.flush()
import os  # noqa: E402
os.kill(os.getpid(), 15)
