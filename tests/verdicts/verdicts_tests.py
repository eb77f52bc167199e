"""How a gate could pass by accident: a table of ways, each with a leak and CISTERN_FAIL_ON, and the exit code it has to
have. Those that pass have to, and shim/doc/ci.md names them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "host"))
import host_tests  # noqa: E402
from host_tests import HostTest  # noqa: E402

FAILS, UNDECIDED = 23, 24

# Each row: what is tried, the words of leaky, options without CISTERN_, the exit code.
OPTIONS = [
    ("a value that does not exist", "lose", {"FAIL_ON": "anny"}, FAILS),
    ("an empty value", "lose", {"FAIL_ON": ""}, FAILS),
    ("a space behind it", "lose", {"FAIL_ON": "any "}, FAILS),
    ("quotes that a file of variables keeps", "lose", {"FAIL_ON": '"any"'}, FAILS),
    ("a size with a space", "lose", {"FAIL_ON": "any:1 KiB"}, FAILS),
    ("a size with a unit that does not exist", "lose", {"FAIL_ON": "any:1XB"}, FAILS),
    ("upper case is meant", "lose", {"FAIL_ON": "ANY:4kib"}, FAILS),
    ("several, one of which holds", "lose", {"FAIL_ON": "growing:1GiB,any"}, FAILS),
    ("several, one of which is none", "lose", {"FAIL_ON": "growing,al"}, FAILS),
    ("a size that is not reached", "lose", {"FAIL_ON": "any:4097"}, 0),
    ("a name with an underscore less", "lose", {"FAILON": "any"}, FAILS),
    ("a name of its own", "lose", {"FAIL_IF": "any"}, FAILS),
    ("a name with a space behind it", "lose", {"FAIL_ON ": "any"}, FAILS),
    ("a fail code of 0", "use", {"FAIL_ON": "any", "FAIL_CODE": "0"}, FAILS),
    ("a fail code of 256, which is 0", "use", {"FAIL_ON": "any", "FAIL_CODE": "256"}, FAILS),
    ("suppressions that are not there", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "none"}, FAILS),
    ("suppressions that are a folder", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "/"}, FAILS),
    ("suppressions below a file", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "/dev/null/rules"}, FAILS),
    ("suppressions with a line that is no rule", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "no_rules"}, FAILS),
    ("suppressions of everything, which is said", "lose", {"FAIL_ON": "any", "SUPPRESSIONS": "all_rules"}, 0),
    ("suppressions that are a pipe", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "pipe"}, FAILS),
    ("suppressions that are too long", "use", {"FAIL_ON": "any", "SUPPRESSIONS": "long_rules"}, FAILS),
    ("suppressions that could not be read at the end", "lose no-descriptors",
     {"FAIL_ON": "any", "SUPPRESSIONS": "all_rules"}, 0),
    ("suppressions by a wrong name", "use", {"FAIL_ON": "any", "SUPPRESSION": "all_rules"}, FAILS),
    ("sites of a wrong value", "use", {"FAIL_ON": "lost", "SITES": "al"}, FAILS),
    ("sites that are off", "lose", {"FAIL_ON": "lost", "SITES": "off"}, FAILS),
    ("growth without call sites", "use", {"FAIL_ON": "growing", "SITES": "off"}, UNDECIDED),
    ("a name that is hardly like one of ours", "use", {"FAIL_ON": "any", "CHECKS": "1", "POST": "1"}, 0),
    ("a time that is none", "use", {"FAIL_ON": "lost", "LEAK_CHECK": "soon"}, FAILS),
    ("a wrong value beside no gate", "lose", {"FAIL_CODE": "256", "SITES": "al"}, 0),
    ("no gate", "lose", {"FAIL_ON": "off"}, 0),
    ("Cistern is off", "lose", {"FAIL_ON": "any", "": "off"}, 0),
]

JUDGING = [
    ("nobody judges", "lose", {"FAIL_ON": "lost", "LEAK_CHECK": "0"}, UNDECIDED),
    ("nobody judges, and nothing is there", "use", {"FAIL_ON": "lost", "LEAK_CHECK": "0"}, 0),
    ("nobody judges, and not enough is there", "lose", {"FAIL_ON": "lost:1MiB", "LEAK_CHECK": "0"}, 0),
    ("nobody judges what counts in any case", "lose", {"FAIL_ON": "any", "LEAK_CHECK": "0"}, FAILS),
    ("undecided may pass, where that is chosen", "lose",
     {"FAIL_ON": "lost", "LEAK_CHECK": "0", "UNDECIDED_CODE": "0"}, 0),
    ("a code of its own", "lose", {"FAIL_ON": "lost", "LEAK_CHECK": "0", "UNDECIDED_CODE": "99"}, 99),
    ("beside another thread", "lose thread", {"FAIL_ON": "lost,possible"}, FAILS),
    ("in the last thread, when main's has ended", "last-loses", {"FAIL_ON": "lost", "SITES": "all"}, FAILS),
    ("what a variable leads to", "keep", {"FAIL_ON": "lost"}, 0),
    ("host memory, of which samples are kept", "lose-host", {"FAIL_ON": "lost"}, 0),
    ("host memory", "lose-host", {"FAIL_ON": "lost", "SITES": "all"}, FAILS),
    ("host memory that another allocator serves", "lose-host",
     {"FAIL_ON": "lost", "SITES": "all", "HOST_POOL": "off"}, UNDECIDED),
    ("host memory that a forked child inherits and drops", "hold-host fork drop-host",
     {"FAIL_ON": "lost", "SITES": "all"}, 0),
    ("host memory of a forked child's own", "hold-host fork drop-host lose-host",
     {"FAIL_ON": "lost", "SITES": "all"}, FAILS),
    ("threads that go on making buffers", "churn", {"FAIL_ON": "lost"}, 0),
    ("a filter of system calls", "lose filter", {"FAIL_ON": "lost"}, UNDECIDED),
    ("a filter of system calls, and nothing is there", "use filter", {"FAIL_ON": "any"}, 0),
    ("a filter, and a value that is none", "use filter", {"FAIL_ON": "anny"}, FAILS),
    ("a filter, and host memory", "lose-host filter", {"FAIL_ON": "lost", "SITES": "all"}, UNDECIDED),
    ("few system calls from the start", "lose", {"FAIL_ON": "any", "SYSTEM_CALLS": "few"}, UNDECIDED),
]

ENDS = [
    ("exit", "lose exit", {}, FAILS),
    ("_exit", "lose _exit", {}, FAILS),
    ("quick_exit", "lose quick_exit", {}, FAILS),
    ("in a signal handler on a small stack", "lose small-stack", {}, UNDECIDED),
    ("on a small stack of the program's own", "lose coroutine", {}, FAILS),
    ("with a code of its own", "lose code3", {}, 3),
    ("quick_exit in two threads", "lose two-quick_exits", {}, FAILS),
    ("errx in a thread beside the return of main", "lose beside-errx", {}, FAILS),
    ("exit in a thread after the return of main, and that one fails by itself", "lose beside-exit1", {}, 1),
    ("the same, and nothing is lost", "use beside-exit1", {}, 1),
    ("_exit in a thread after the return of main", "lose beside-_exit1", {}, 1),
    ("the same without a gate", "use beside-_exit1", {"FAIL_ON": "off"}, 1),
    ("of a parent on a small stack, for its child", "child-loses small-stack", {}, FAILS),
    ("by abort", "lose abort", {}, -6),
    ("killed", "lose kill", {}, -9),
    ("another program takes its place", "lose exec", {}, 0),
    ("no report is wanted", "lose", {"REPORT": "none"}, FAILS),
    ("the report does not fit on the disk", "lose", {"REPORT": "/dev/full"}, FAILS),
    ("the report's folder is not there", "lose", {"REPORT": "none/of/these"}, FAILS),
    ("in a forked child", "fork lose", {}, FAILS),
    ("in a forked child that calls _exit", "fork lose _exit", {}, FAILS),
    ("in a child of a child", "double-fork lose", {}, FAILS),
    ("in a child, and each is for itself", "fork lose", {"FAIL_CHILDREN": "off"}, 0),
    ("in a child that nobody can judge", "fork lose", {"LEAK_CHECK": "0", "FAIL_ON": "lost"}, UNDECIDED),
    ("in a child under a filter", "fork lose filter", {}, UNDECIDED),
    ("in a child that fails by itself", "fork lose code3", {}, 0),
]

# LEAKY is the program; each command ends with 0 by itself.
LAUNCHERS = [
    ("a shell that goes on", ["sh", "-c", "LEAKY lose; true"], FAILS),
    ("a shell that ignores it", ["bash", "-c", "LEAKY lose || true"], FAILS),
    ("a pipe", ["sh", "-c", "LEAKY lose | cat"], FAILS),
    ("in the background", ["sh", "-c", "LEAKY lose & wait"], FAILS),
    ("of two the first", ["sh", "-c", "LEAKY lose; LEAKY use"], FAILS),
    ("another program in the place of the first", ["sh", "-c", "LEAKY lose; exec LEAKY use"], FAILS),
    ("a launcher in the place of the first", ["sh", "-c", "LEAKY lose & wait; exec env A=b timeout 9 true"], FAILS),
    ("several, one in the place of the other", ["sh", "-c", "LEAKY lose; exec nice sh -c 'true; exec true'"], FAILS),
    ("one that ends after another program has come", ["sh", "-c", "(sleep .2; LEAKY lose) & exec sleep 5"], FAILS),
    ("bash that puts its last command in its place", ["bash", "-c", "LEAKY lose; LEAKY use"], FAILS),
    ("another program that has no preload", ["sh", "-c", "LEAKY lose; exec env -u LD_PRELOAD true"], 0),
    ("by exec", ["sh", "-c", "exec LEAKY lose"], FAILS),
    ("env", ["env", "A=b", "LEAKY", "lose"], FAILS),
    ("timeout", ["timeout", "60", "LEAKY", "lose"], FAILS),
    ("nice", ["nice", "LEAKY", "lose"], FAILS),
    ("nohup", ["nohup", "LEAKY", "lose"], FAILS),
    ("setsid", ["setsid", "-w", "LEAKY", "lose"], FAILS),
    ("ionice", ["ionice", "-c3", "LEAKY", "lose"], FAILS),
    ("taskset", ["taskset", "-c", "0", "LEAKY", "lose"], FAILS),
    ("stdbuf", ["stdbuf", "-oL", "LEAKY", "lose"], FAILS),
    ("flock", ["flock", "lock", "LEAKY", "lose"], FAILS),
    ("a terminal of its own", ["script", "-qc", "LEAKY lose", "/dev/null"], FAILS),
    ("GNU parallel", ["parallel", "--will-cite", ":::", "LEAKY lose; true"], FAILS),
    ("ninja", ["ninja", "-f", "rules.ninja"], FAILS),
    ("awk", ["awk", "BEGIN { system(\"LEAKY lose\"); exit 0 }"], FAILS),
    ("perl", ["perl", "-e", "system('LEAKY lose'); exit 0"], FAILS),
    ("no new privileges", ["setpriv", "--nnp", "sh", "-c", "LEAKY lose; true"], FAILS),
    ("a user namespace for all", ["unshare", "-Ur", "sh", "-c", "LEAKY lose; true"], FAILS),
    ("a user namespace for a child", ["sh", "-c", "unshare -Ur LEAKY lose; true"], 0),
    ("a shell that closes all descriptors", ["tcsh", "-fc", "LEAKY lose; true"], 0),
    ("find", ["find", "/", "-maxdepth", "0", "-exec", "LEAKY", "lose", ";"], FAILS),
    ("xargs", ["sh", "-c", "echo lose | xargs -P 2 LEAKY"], 123),
    ("xargs of shells", ["sh", "-c", "echo lose | xargs -P 2 -I{} sh -c 'LEAKY {}; true'"], FAILS),
    ("make that ignores it", ["make", "-i", "-f", "makefile"], FAILS),
    ("parallel make that ignores it", ["make", "-j2", "-i", "-f", "makefile"], FAILS),
    ("Python's subprocess", ["python3", "-c", "import subprocess; subprocess.run(['LEAKY', 'lose'])"], FAILS),
    ("os.system", ["python3", "-c", "import os; os.system('LEAKY lose')"], FAILS),
    ("multiprocessing", ["python3", "pool.py", "fork"], FAILS),
    ("multiprocessing, spawned", ["python3", "pool.py", "spawn"], FAILS),
    ("multiprocessing's server", ["python3", "pool.py", "forkserver"], FAILS),
    ("descriptors where its own would be",
     ["bash", "-c", "for n in {240..259}; do eval \"exec $n</dev/null\"; done; exec sh -c 'LEAKY lose; true'"], FAILS),
    ("a thread whose main thread is gone", ["env", "COMMAND=LEAKY lose; true", "LEAKY", "main-gone"], FAILS),
    ("a limit of file sizes", ["bash", "-c", "ulimit -f 1; true; LEAKY use"], 0),
    ("a limit of file sizes, and a forked child", ["bash", "-c", "ulimit -f 1; LEAKY fork lose; true"], FAILS),
    ("a child that has an option wrong", ["bash", "-c", "CISTERN_FAIL_CODE=300 LEAKY use; true"], FAILS),
    ("another gate of the child's own", ["sh", "-c", "CISTERN_FAIL_ON=any,growing LEAKY lose; true"], 0),
    ("a child without the preload", ["sh", "-c", "LD_PRELOAD= LEAKY lose; true"], 0),
    ("a namespace of processes", ["unshare", "-fp", "sh", "-c", "LEAKY lose; true"], FAILS),
    ("a container's first process", ["unshare", "-fp", "--mount-proc", "LEAKY", "lose"], FAILS),
]

POOL = """import multiprocessing, subprocess, sys
def work(): subprocess.run(["LEAKY", "lose"])
if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    process.start()
    process.join()
"""


class VerdictTest(HostTest):
    def setUp(self):
        super().setUp()
        self.leaky = str(self.program("leaky"))
        for name, text in (("no_rules", "leak\n"), ("all_rules", "leak:*\n"),
                           ("long_rules", "leak:nobody\n" * 90000), ("pool.py", POOL),
                           ("rules.ninja", "rule run\n command = LEAKY lose; true\nbuild all: run\n"),
                           ("makefile", "all: a b\na:\n\tLEAKY lose\nb:\n\tLEAKY use\n")):
            (self.folder / name).write_text(text.replace("LEAKY", self.leaky))
        os.mkfifo(self.folder / "pipe")

    def ended(self, command, options):
        environment = {f"CISTERN_{name}" if name else "CISTERN": value for name, value in options.items()}
        return self.shimmed(*command, environment=environment, cwd=self.folder)

    def leaks(self, words, **options):
        return self.ended([self.leaky, *words.split()], options)


class Table(VerdictTest):
    def check(self, rows, more=None):
        for name, words, options, code in rows:
            with self.subTest(name):
                done = self.leaks(words, **{**(more or {}), **options})
                self.assertEqual(done.status, code, done.err)

    def test_options(self):
        self.check(OPTIONS)

    def test_judging(self):
        self.check(JUDGING)

    def test_ends(self):
        self.check(ENDS, {"FAIL_ON": "any"})

    def test_launchers(self):
        for name, command, code in LAUNCHERS:
            with self.subTest(name):
                command = [word.replace("LEAKY", self.leaky) for word in command]
                if "unshare" in " ".join(command) and subprocess.run(["unshare", "-Urfp", "true"]).returncode != 0:
                    self.skipTest("no namespaces can be made here")
                if command[0] == "python3":
                    command[0] = sys.executable
                if not shutil.which(command[0]):
                    self.skipTest(f"no {command[0]}")
                done = self.ended(command, {"FAIL_ON": "any"})
                self.assertEqual(done.status, code, done.err)

    def test_names_that_are_not_ours(self):
        for name in ("cistern_fail_on", "CISTRN_FAIL_ON", "CISTERNFAIL_ON"):
            with self.subTest(name):
                done = self.shimmed(self.leaky, "lose", environment={name: "any"})
                self.assertEqual(done.status, FAILS, done.err)

    def test_launchers_alone_never_fail_for_a_typo(self):
        for command in (["true"], ["env", "true"], ["timeout", "9", "true"], ["sh", "-c", "true; true"],
                        ["sh", "-c", "make -v >/dev/null"], [self.leaky, "exit"]):
            with self.subTest(command):
                self.assertEqual(self.ended(command, {"FAIL_ON": "anny"}).status, 0)

    def test_as_a_layer(self):
        for words, options, code in (("lose", {}, FAILS), ("use", {}, 0), ("use", {"FAIL_ON": "anny"}, FAILS),
                                     ("lose", {"FAIL_ON": "lost", "LEAK_CHECK": "0"}, UNDECIDED),
                                     ("use fork lose", {}, FAILS), ("use fork lose _exit", {}, FAILS),
                                     ("lose _exit", {}, FAILS), ("lose _exit", {"FAIL_ON": "lost"}, FAILS),
                                     ("use _exit", {}, 0), ("lose _exit", {"FAIL_ON": "off"}, 0),
                                     ("lose quick_exit", {}, FAILS), ("lose quick_exit3", {}, 3),
                                     ("lose abort", {}, -6),
                                     ("use lose-host", {"FAIL_ON": "lost", "SITES": "all"}, UNDECIDED),
                                     ("use lose-host", {"FAIL_ON": "lost"}, 0)):
            with self.subTest(words=words, options=options):
                settings = {f"CISTERN_{name}": value for name, value in ({"FAIL_ON": "any"} | options).items()}
                done = self.plain(self.leaky, *words.split(), environment=settings | {
                    "OPENCL_LAYERS": str(host_tests.ARGUMENTS.shim)})
                self.assertEqual(done.status, code, done.err)

    def test_a_test_runner(self):
        if not shutil.which("ctest"):
            self.skipTest("no ctest")
        (self.folder / "CTestTestfile.cmake").write_text(
            f'add_test(loses sh -c "{self.leaky} lose; true")\nadd_test(uses {self.leaky} use)\n')
        done = self.ended(["ctest", "-Q"], {"FAIL_ON": "any"})
        self.assertEqual(done.status, FAILS, done.err)


class Lines(VerdictTest):
    """One line that says why, and the report's first."""

    def said(self, words, **options):
        done = self.leaks(words, **options)
        return [line for line in done.err.splitlines() if line.startswith(("cistern:", "VERDICT"))]

    def test_what_was_not_understood(self):
        value = ("CISTERN_FAIL_ON: 'anny' is not off or a comma-separated list of any, lost, possible, growing, "
                 "each with an optional :SIZE")
        line = f"cistern: {value}; processes that used GPU memory will fail"
        self.assertEqual(self.said("use", FAIL_ON="anny"), [
            line, f"VERDICT  misconfigured ({value}): nothing leaked on the GPU      "
                  "(exit code 23 instead of 0, by CISTERN_FAIL_ON)"])
        self.assertEqual(self.leaks("use", FAIL_ON="anny", REPORT="none").err, line + "\n")

    def test_suppressions(self):
        self.assertEqual(self.leaks("use", FAIL_ON="any", SUPPRESSIONS="none", REPORT="none").err,
                         "cistern: CISTERN_SUPPRESSIONS: none: No such file or directory\n")
        self.assertEqual(self.leaks("lose", FAIL_ON="any", SUPPRESSIONS="all_rules", REPORT="none").err,
                         "cistern: CISTERN_SUPPRESSIONS: all_rules: leak:* suppresses everything\n")

    def test_what_nobody_could_decide(self):
        reason = "CISTERN_LEAK_CHECK=0: live memory was not judged"
        line = f"cistern: CISTERN_FAIL_ON: could not decide: {reason}; exit code "
        self.assertEqual(self.said("lose", FAIL_ON="lost", LEAK_CHECK="0"), [
            line + "24 instead of 0 (CISTERN_UNDECIDED_CODE)",
            f"VERDICT  could not decide ({reason}): 1 block, 4.0 KiB never freed at 1 site      "
            "(exit code 24 instead of 0, by CISTERN_UNDECIDED_CODE)"])
        self.assertEqual(self.leaks("lose", FAIL_ON="lost", LEAK_CHECK="0", UNDECIDED_CODE="0", REPORT="none").err,
                         line + "unchanged (CISTERN_UNDECIDED_CODE)\n")

    def test_in_json(self):
        report = self.folder / "report.json"
        done = self.leaks("use fork lose", FAIL_ON="any", REPORT=str(report), REPORT_FORMAT="json")
        self.assertEqual((done.status, done.err), (FAILS, ""))
        shown = json.loads(report.read_text())["cistern"]
        self.assertEqual((shown["exit_code"], shown["gate"]), (FAILS, {"outcome": "passed"}))
        self.assertEqual(shown["children"], {"passed": 0, "failed": 1, "undecided": 0, "misconfigured": 0})

    def test_a_shell_says_it_for_those_it_started(self):
        done = self.ended(["sh", "-c", f"{self.leaky} lose 2>&-; {self.leaky} use 2>&-; true"], {"FAIL_ON": "any"})
        self.assertEqual(done.err, "cistern: CISTERN_FAIL_ON: child processes: 2 judged, 1 failed, 0 undecided, "
                                   "0 misconfigured; exit code 23 instead of 0 (CISTERN_FAIL_CHILDREN)\n")

    def test_host_memory_that_is_in_order_is_silent(self):
        done = self.ended(["true"], {"FAIL_ON": "lost", "SITES": "all"})
        self.assertEqual(done.all(), ("", "", 0))
        done = self.leaks("lose-host", FAIL_ON="lost", SITES="all")
        self.assertIn("VERDICT  no GPU memory was used      (exit code 23 instead of 0, by CISTERN_FAIL_ON)", done.err)


class Family(VerdictTest):
    """Nothing is in the way of those who come of a process with a gate."""

    def test_the_environment_and_the_descriptors_are_the_programs_own(self):
        look = ["sh", "-c", "env -0 | tr '\\0' '\\n' | grep -v -e ^LD_PRELOAD -e ^CISTERN -e ^_= | sort; "
                            "for one in 0 1 2 3 4 5 6 7 8 9; do test -e /proc/self/fd/$one && echo $one; done; true"]
        self.assertEqual(self.ended(look, {"FAIL_ON": "any"}).all(), self.plain(*look, cwd=self.folder).all())

    def test_programs_that_are_executed_have_no_descriptor_of_it(self):
        code = "import os, subprocess; subprocess.run(['/bin/ls', '/proc/self/fd'], close_fds=False, " \
               "env={})"
        self.assertEqual(self.ended([sys.executable, "-c", code], {"FAIL_ON": "any"}).out,
                         self.plain(sys.executable, "-c", code).out)

    def test_each_way_to_put_another_program_in_the_heads_place(self):
        for how in ("execl", "execlp", "execle", "execv", "execvp", "execve", "execvpe", "fexecve", "execveat"):
            with self.subTest(how):
                done = self.ended([str(self.program("executes")), how, self.leaky], {"FAIL_ON": "any"})
                self.assertEqual((done.out, done.status), ("No such file or directory, 0 more\n", FAILS), done.err)

    def test_the_program_in_the_heads_place_has_the_descriptors_it_would_have(self):
        for then in ("exec sh -c 'exec ls /proc/self/fd'", "LD_PRELOAD= exec ls /proc/self/fd"):
            with self.subTest(then):
                look = ["sh", "-c", f"{self.leaky} use 2>&-; {then}"]
                said = self.ended(look, {"FAIL_ON": "any"})
                self.assertEqual([line for line in said.out.split() if int(line) < 240], self.plain(*look).out.split())

    def test_a_small_limit_of_descriptors(self):
        for limit in (8, 30, 250):
            with self.subTest(limit):
                command = ["sh", "-c", f"ulimit -n {limit}; exec {self.leaky} use fork lose"]
                self.assertEqual(self.ended(command, {"FAIL_ON": "any"}).status, FAILS)

    def test_a_head_that_is_killed_leaves_nothing(self):
        before = set(os.listdir("/dev/shm")) | set(os.listdir("/tmp"))
        self.assertEqual(self.leaks("use kill", FAIL_ON="any").status, -9)
        left = (set(os.listdir("/dev/shm")) | set(os.listdir("/tmp"))) - before
        self.assertFalse([name for name in left if "cistern" in name])

    def test_one_that_fails_by_itself_keeps_its_code(self):
        done = self.ended(["sh", "-c", f"{self.leaky} lose; exit 7"], {"FAIL_ON": "any"})
        self.assertEqual(done.status, 7)
        self.assertFalse(re.search("CISTERN_FAIL_CHILDREN", done.err))


if __name__ == "__main__":
    host_tests.main()
