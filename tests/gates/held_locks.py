"""No function of another library is called while the calling thread holds a lock of Cistern's. Every function that
libcistern.so imports is stubbed, and programs that do much run over the stubs, with all sites and a report."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ARGUMENTS = argparse.Namespace()
TIME_LIMIT_S = 280
# No functions; and what every library calls as if it were an instruction.
LEFT_OUT = re.compile(r"_*(mem|str|environ|stderr|libc_|errno|tls_get_addr|r_debug|gmon|ITM|cxa_finalize)")
THREADS = """
import ctypes, os, threading, zlib
def work():
    for i in range(200):
        block = bytearray(i * 1000 + 1)
        zlib.compress(bytes(block))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(3):
    child = os.fork()
    if not child: os._exit(0)
    os.waitpid(child, 0)
for thread in threads: thread.join()
"""


def lines_of(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.splitlines()


def imported(shim):
    names = {line.split()[-1].split("@")[0] for line in lines_of("nm", "-D", "--undefined-only", shim)}
    return sorted(name for name in names if not LEFT_OUT.match(name))


def words(shim):
    """Where the offset of the count of locks stands, and how far behind that the count of forks is."""
    values = {match[2]: int(match[1], 16) for line in lines_of("nm", "-C", shim)
              if (match := re.match(r"(\w+) b cistern::(?:\(anonymous namespace\)::)?(locks_held|forks)$", line))}
    slots = {int(match[2], 16): match[1] for line in lines_of("readelf", "-rW", shim)
             if (match := re.match(r"(\w+) +\w+ +R_X86_64_TPOFF64 +(\w+)", line))}
    return "0x" + slots[values["locks_held"]], values["forks"] - values["locks_held"]


def sources(calls):
    shim = str(ARGUMENTS.shim)
    return [f"{name} from {lines_of('addr2line', '-sfC', '-e', shim, hex(int(at, 16) - 1))}"
            for name, at in (call.split() for call in sorted(set(calls)))]


class HeldLocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        names = imported(ARGUMENTS.shim)
        print(f"{len(names)} functions are stubbed", file=sys.stderr)
        (folder / "names.inc").write_text("".join(f"STUB({name})\n" for name in names))
        slot, forks = words(ARGUMENTS.shim)
        cls.stubs = folder / "stubs.so"
        subprocess.run([ARGUMENTS.compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", "-fno-stack-protector",
                        "-mgeneral-regs-only", f"-DSLOT={slot}", f"-DFORKS={forks}", f"-I{folder}", "-Wall", "-Wextra",
                        str(HERE / "held_locks.c"), str(HERE / "held_locks.S"), "-o", str(cls.stubs)], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, *command, libraries="", **variables):
        """The functions that were called under a lock."""
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_"))}
            kept |= {"LD_PRELOAD": f"{self.stubs}:{ARGUMENTS.shim}", "HELD_LOCKS": str(log), "CISTERN_SITES": "all",
                     "CISTERN_REPORT": f"{folder}/report.%p"} | variables
            if libraries:
                kept["LD_LIBRARY_PATH"] = libraries
            done = subprocess.run(list(map(str, command)), env=kept, capture_output=True, text=True,
                                  timeout=TIME_LIMIT_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            calls = log.read_text().splitlines()
        self.assertTrue(any(call.startswith("(calls)") for call in calls), "the stubs were not called")
        return [call for call in calls if not call.startswith("(calls)")]

    def nothing_under_a_lock(self, *command, **more):
        found = sources(self.run_program(*command, **more))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_a_call_that_is_noted_is_seen(self):
        self.assertTrue(self.run_program("/bin/true", HELD_LOCKS_PRETEND="1"))

    def test_host_memory_threads_and_forks(self):
        self.nothing_under_a_lock("/usr/bin/python3", "-S", "-c", THREADS)

    def test_programs_of_drivers(self):
        for command in ARGUMENTS.commands:
            with self.subTest(pathlib.Path(command[0]).name):
                self.nothing_under_a_lock(*command, libraries=ARGUMENTS.libraries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--libraries", default="", help="where the drivers lie")
    parser.add_argument("--command", dest="commands", action="append", default=[], type=str.split)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
