"""Running processes that are watched (CISTERN_LIVE): the command `cistern` asks, and they answer, whatever they are at,
and without a trace where there is no request.

usage: live_tests.py CISTERN SHIM SIMULATOR WATCHED [TEST...]
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

CISTERN, SHIM, SIMULATOR, WATCHED = sys.argv[1:5]
CISTERN, SHIM = str(pathlib.Path(CISTERN).resolve()), str(pathlib.Path(SHIM).resolve())
SHARED_MEMORY = pathlib.Path("/dev/shm")
FOLDER = SHARED_MEMORY / f"cistern-{os.geteuid()}"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN")}
KIB, MIB = 1 << 10, 1 << 20
PYTHON = "/usr/bin/python3"


def wait_until(holds, seconds=10):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def fields_of_state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def name_of_page(pid):
    namespace = os.readlink(f"/proc/{pid}/ns/pid").strip("pid:[]")
    return f"{namespace}-{pid}-{fields_of_state(pid)[19]}"


class Watched:
    """The program, under Cistern, by its lines of input."""

    def __init__(self, test, program=(WATCHED,), **options):
        environment = {**ENVIRONMENT, "LD_PRELOAD": SHIM, "LD_LIBRARY_PATH": SIMULATOR, "CISTERN_REPORT": "none",
                       **options.pop("environment", {})}
        self.process = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **options)
        test.addCleanup(self.stop)
        self.pid = self.process.pid

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line):
        self.send(line)
        return self.process.stdout.readline().strip()

    def page(self):
        return FOLDER / name_of_page(self.pid)

    def end(self, how="exit"):
        self.send("end " + how)
        return self.process.wait(timeout=60), self.process.stderr.read()

    def stop(self):
        self.process.kill()
        self.process.communicate()


class Live(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.here = pathlib.Path(temporary.name)

    def watch(self, live="on", **options):
        environment = {"CISTERN_LIVE": live, **options.pop("environment", {})}
        return Watched(self, environment=environment, **options)

    def cistern(self, *arguments, code=0, **options):
        ran = subprocess.run([CISTERN, *map(str, arguments)], capture_output=True, text=True, cwd=self.here,
                             timeout=120, env=ENVIRONMENT, **options)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran

    def kinds(self, watched):
        """As the process answers them now."""
        self.cistern("top", watched.pid, "--once")
        return json.loads(pathlib.Path(str(watched.page()) + ".json").read_text())["kinds"]

    def snapshot(self, watched, *options, **others):
        self.cistern("snapshot", watched.pid, "-o", "snapshot.json", *options, **others)
        return json.loads((self.here / "snapshot.json").read_text())

    def listed(self, **options):
        return [int(line.split()[0]) for line in self.cistern("top", **options).stdout.splitlines()[1:]]


class Page(Live):
    def test_a_process_that_uses_no_gpu_has_none(self):
        watched = self.watch()
        self.assertEqual(watched.do("allocate host 1000"), "done")
        self.assertFalse(watched.page().exists())
        watched.do("allocate device 1000")
        self.assertTrue(watched.page().exists())

    def test_it_is_only_this_users(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        self.assertEqual(FOLDER.stat().st_mode & 0o777, 0o700)
        self.assertEqual(watched.page().stat().st_mode & 0o777, 0o600)

    def test_nobody_who_did_not_ask_for_one_has_one(self):
        for options in ({}, {"CISTERN_LIVE": "off"}, {"CISTERN_LIVE": "thread", "CISTERN": "off"}):
            watched = Watched(self, environment=options)
            watched.do("allocate device 1000")
            self.assertFalse(watched.page().exists(), options)
            self.assertEqual(watched.do("threads"), "1")

    def test_a_process_that_nobody_asks_has_no_thread(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        self.assertEqual(watched.do("threads"), "1")
        self.cistern("top", watched.pid, "--once", code=3)
        watched.do("call")
        self.kinds(watched)
        self.assertEqual(watched.do("threads"), "2")

    def test_figures_are_the_programs(self):
        watched = self.watch("thread")
        for line in ("allocate device 1000", f"allocate device {3 * MIB}", f"allocate pinned {MIB}",
                     f"allocate host {64 * MIB}"):
            watched.do(line)
        kinds = self.kinds(watched)
        self.assertEqual((kinds["device:0"]["live_blocks"], kinds["pinned"]["live_blocks"]), (2, 1))
        self.assertIn(kinds["device:0"]["live_bytes"], range(1000 + 3 * MIB, 4 * MIB))
        self.assertGreaterEqual(kinds["host"]["live_bytes"], 64 * MIB)
        watched.do("free")
        watched.do("free")
        kinds = self.kinds(watched)
        self.assertEqual((kinds["pinned"]["live_blocks"], kinds["pinned"]["pooled_blocks"]), (0, 1))
        self.assertLess(kinds["host"]["live_bytes"], 64 * MIB)

    def test_it_goes_with_the_process(self):
        for how, code in (("exit", 0), ("_exit", 0), ("abort", -signal.SIGABRT)):
            watched = self.watch(environment={"CISTERN_REPORT": str(self.here / f"{how}.json")})
            watched.do("allocate device 1000")
            watched.do("call")
            page = watched.page()
            self.assertTrue(page.exists())
            self.cistern("snapshot", watched.pid, "--wait", "0.1", code=3)
            watched.do("call")
            self.kinds(watched)
            self.assertEqual(watched.end(how)[0], code)
            self.assertEqual([path.name for path in FOLDER.iterdir() if path.name.startswith(page.name)], [], how)

    def test_it_goes_when_a_signal_ends_the_process(self):
        watched = self.watch(environment={"CISTERN_REPORT": str(self.here / "end.json")})
        watched.do("allocate device 1000")
        page = watched.page()
        watched.process.terminate()
        self.assertEqual(watched.process.wait(timeout=20), -signal.SIGTERM)
        self.assertFalse(page.exists())

    def test_that_of_a_killed_process_stays_until_the_next(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        self.kinds(watched)
        page = watched.page()
        watched.process.kill()
        watched.process.wait()
        self.assertTrue(page.exists())
        self.assertEqual(json.loads(pathlib.Path(f"{page}.json").read_text())["kinds"]["device:0"]["live_blocks"], 1)
        self.assertNotIn(watched.pid, self.listed())
        self.watch().do("allocate device 1000")
        self.assertEqual([path.name for path in FOLDER.iterdir() if path.name.startswith(page.name)], [])

    def test_a_child_has_its_own(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        child = int(watched.do("fork"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        page = FOLDER / name_of_page(child)
        self.assertFalse(page.exists(), "CUDA cannot be used after a fork")
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        child = int(watched.do("fork"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        page = FOLDER / name_of_page(child)
        self.assertTrue(wait_until(page.exists))
        self.cistern("top", child)
        self.assertEqual(json.loads(pathlib.Path(f"{page}.json").read_text())["cistern"]["pid"], child)
        self.assertFalse(pathlib.Path(f"{watched.page()}.json").exists(), "the parent was not asked")

    def test_a_child_that_was_forked_unseen_is_not_taken_for_the_process(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        child = int(watched.do("raw_fork"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        listed = subprocess.Popen([CISTERN, "top"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(0.2)
        watched.do("call")
        self.assertRegex(listed.communicate()[0], rf"(?m)^ *{watched.pid} ")
        self.assertNotIn(child, self.listed())

    def test_a_program_that_the_process_executes_has_none_of_it(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        watched.send("execute sleep")
        self.assertTrue(wait_until(lambda: "sleep" in pathlib.Path(f"/proc/{watched.pid}/comm").read_text()))
        self.assertNotIn(watched.pid, self.listed())
        self.cistern("snapshot", watched.pid, code=2)

    def test_a_filter_of_system_calls_ends_it(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        page = watched.page()
        self.assertTrue(page.exists())
        time.sleep(0.1)
        begin = time.monotonic()
        self.assertEqual(watched.do("filter"), "done")
        self.assertLess(time.monotonic() - begin, 0.5, "it waits for the thread's next look")
        self.assertFalse(page.exists())
        self.assertEqual(watched.do("free"), "done")
        watched.do("allocate device 1000")
        self.assertEqual(watched.end("_exit")[0], 0)

    def test_that_of_a_running_process_stays_where_proc_is_of_another_namespace(self):
        if os.geteuid():
            self.skipTest("only root makes namespaces of processes")
        script = f"""
            namespace=$(readlink /proc/self/ns/pid | tr -dc 0-9); rm -f {FOLDER}/$namespace-*
            CISTERN_LIVE=thread LD_PRELOAD={SHIM} sleep 60 & first=$!
            pages={FOLDER}/$namespace-$first-*
            for i in $(seq 200); do ls $pages 2> /dev/null && break; sleep 0.05; done > /dev/null
            CISTERN_LIVE=thread LD_PRELOAD={SHIM} sleep 0
            ls $pages
            kill $first; rm -f $pages"""
        ran = subprocess.run(["unshare", "-pf", "sh", "-c", script], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual(len(ran.stdout.splitlines()), 1, ran)

    def test_capabilities_of_one_thread(self):
        """The C library aborts if one thread is refused what another may."""
        if os.geteuid():
            self.skipTest("only root gives up being root")
        watched = self.watch("thread", program=("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "id -u"))
        self.assertEqual(watched.process.communicate(timeout=60), ("65534\n", ""))
        self.assertEqual(watched.process.returncode, 0)

    def test_user_namespaces_are_for_processes_of_one_thread(self):
        plain = subprocess.run(["unshare", "-U", "id", "-u"], env=ENVIRONMENT, capture_output=True, text=True)
        if plain.returncode:
            self.skipTest(f"no user namespace can be made: {plain.stderr}")
        watched = self.watch("thread", program=("unshare", "-U", "id", "-u"))
        self.assertEqual(watched.process.communicate(timeout=60), (plain.stdout, ""))
        self.assertEqual(watched.process.returncode, 0)

    def in_own_shared_memory(self, setup):
        """The program's lines of error where `setup`, a shell's line, has prepared another /dev/shm."""
        if os.geteuid():
            self.skipTest("only root mounts another /dev/shm")
        script = f'mount -t tmpfs none /dev/shm && {setup} && printf "allocate device 1000\\nend exit\\n" | "$0"'
        environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": SIMULATOR, "WATCHED_PRELOAD": SHIM}
        script = script.replace('"$0"', 'LD_PRELOAD=$WATCHED_PRELOAD CISTERN_LIVE=on CISTERN_REPORT=/tmp/none.$$ "$0"')
        ran = subprocess.run(["unshare", "-m", "sh", "-c", script + "; rm -f /tmp/none.*", WATCHED], env=environment,
                             capture_output=True, text=True, timeout=60)
        self.assertEqual((ran.returncode, ran.stdout), (0, "done\n"), ran.stderr)
        return ran.stderr

    def test_no_page_where_the_folder_is_not_safe(self):
        folder = f"/dev/shm/cistern-{os.geteuid()}"
        for setup, why in ((f"mkdir -m 777 {folder}", "Permission denied"),
                           (f"mkdir -m 700 {folder}; chown 12345 {folder}", "Permission denied"),
                           (f"ln -s /tmp {folder}", "Permission denied"), (f"touch {folder}", "Permission denied"),
                           ("mount -o remount,ro /dev/shm", "Read-only file system")):
            self.assertIn(f"cistern: CISTERN_LIVE: {folder}: {why}: this process cannot be watched\n",
                          self.in_own_shared_memory(setup), setup)

    def test_no_page_where_there_is_no_room(self):
        full = "mount -o remount,size=64k /dev/shm; head -c 65536 /dev/zero > /dev/shm/full"
        self.assertIn("No space left on device: this process cannot be watched", self.in_own_shared_memory(full))

    def test_limits(self):
        for name, limit in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_FSIZE, 8 * KIB), (resource.RLIMIT_NOFILE, 4)):
            watched = self.watch("thread", preexec_fn=lambda: resource.setrlimit(name, (limit, limit)))
            self.assertEqual(watched.do("allocate host 1000"), "done", name)
            subprocess.run([CISTERN, "snapshot", str(watched.pid)], capture_output=True, env=ENVIRONMENT, cwd=self.here)
            self.assertEqual(watched.do("allocate host 1000"), "done", name)
            self.assertEqual(watched.end()[0], 0)


    def test_stacks_of_threads_are_small(self):
        script = ("import ctypes, os, time\nlibc, how = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
                  "libc.pthread_attr_init(how)\nlibc.pthread_attr_setstacksize(how, ctypes.c_size_t(16384))\n"
                  "libc.pthread_setattr_default_np(how)\nchild = os.fork()\n"
                  "if not child: time.sleep(60)\nprint(child, flush=True)\nos.waitpid(child, 0)\n")
        watched = self.watch("thread", program=(PYTHON, "-c", script))
        child = int(watched.process.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.assertTrue(wait_until((FOLDER / name_of_page(child)).exists))
        self.cistern("snapshot", child, "-o", "snapshot.json")


class Requests(Live):
    def test_a_snapshot_is_judged_and_the_program_goes_on(self):
        watched = self.watch("thread")
        watched.do(f"allocate device {MIB}")
        report = self.snapshot(watched)
        self.assertEqual(report["cistern"]["moment"], "request")
        self.assertNotIn("why_not", report["judging"])
        self.assertEqual([(row["kind"], row["class"], row["blocks"]) for row in report["leaks"]
                          if row["kind"] == "device:0"], [("device:0", "reachable", 1)])
        self.assertEqual(watched.do("call"), "done")
        self.assertEqual(watched.end()[0], 0)

    def test_its_verdict_and_the_next_command(self):
        watched = self.watch("thread")
        watched.do(f"allocate device {MIB}")
        lines = self.cistern("snapshot", watched.pid).stderr.splitlines()
        name = f"cistern-watched-{watched.pid}.json"
        self.assertRegex(lines[0], r"^cistern: 1 block, 1\.0 MiB reachable at 1 site")
        self.assertEqual(lines[1:], [f"cistern: next: cistern report {name}"])
        self.assertIn("device:0", self.cistern("report", name).stdout)

    def test_an_idle_process_without_a_thread_answers_at_its_next_call(self):
        watched = self.watch()
        watched.do("allocate device 1000")
        self.assertEqual(
            self.cistern("snapshot", watched.pid, "--wait", "0.2", code=3).stderr,
            f"cistern: pid {watched.pid} (watched) did not answer in 0.2 s: it answers at its next call for a GPU; "
            "with CISTERN_LIVE=thread it answers while it is idle, too\n")
        waiting = subprocess.Popen([CISTERN, "snapshot", str(watched.pid)], cwd=self.here, env=ENVIRONMENT,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(0.2)
        watched.do("call")
        self.assertIn("next: cistern report", waiting.communicate(timeout=60)[1])
        self.snapshot(watched)  # idle again, but by now it has a thread

    def test_a_trim_gives_back_what_pools_keep(self):
        watched = self.watch("thread")
        for kind, bytes_ in (("device", 4 * MIB), ("pinned", 2 * MIB)):
            watched.do(f"allocate {kind} {bytes_}")
            watched.do("free")
        before = self.kinds(watched)
        cached = before["device:0"]["pooled_bytes"] + before["pinned"]["pooled_bytes"]
        self.assertEqual(cached, 6 * MIB)
        line = self.cistern("trim", watched.pid).stderr
        self.assertRegex(line, rf"^cistern: pid {watched.pid} \(watched\) gave back [6-9]\.\d MiB\n$")
        after = self.kinds(watched)
        self.assertEqual((after["device:0"]["pooled_bytes"], after["pinned"]["pooled_bytes"]), (0, 0))
        self.assertEqual(after["device:0"]["driver_frees"], 1)

    def test_several_ask_at_once(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        asking = [subprocess.Popen([CISTERN, *what, str(watched.pid)], cwd=self.here, env=ENVIRONMENT,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for what in (["top", "--once"], ["trim"], ["metrics"], ["snapshot", "-o", "one.json"]) * 4]
        self.assertEqual([one.wait(timeout=60) for one in asking], [0] * len(asking))

    def test_nobody_to_ask(self):
        other = subprocess.Popen(["sleep", "60"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        for process in (other.pid, 999_999_999, "nobody", "1x", "-5", ""):
            ran = self.cistern("trim", "--", process, code=2)
            self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)

    def test_names(self):
        first, second = self.watch("thread"), self.watch("thread")
        pids = sorted((first.pid, second.pid))
        for one in (first, second):
            one.do("call")
        named = self.cistern("trim", "watched", code=2).stderr
        self.assertTrue(named.startswith("cistern: watched is the name of several processes:"), named)
        for pid in pids:
            self.assertIn(f" {pid}", named)

    def test_a_script_is_known_by_its_name(self):
        text = ("import ctypes, time\nctypes.CDLL(None).prctl(15, b'pt_main_thread')\nprint('ready', flush=True)\n"
                "time.sleep(60)\n")
        for name in ("train_me.py", "module_of_it.py"):
            (self.here / name).write_text(text)
        script = str(self.here / "train_me.py")
        for options, name in (((script,), "train_me.py"), (("-u", "-W", "ignore", "-Xdev", script), "train_me.py"),
                              (("-um", "module_of_it"), "module_of_it"), (("-c", text), "pt_main_thread")):
            watched = self.watch("thread", program=(PYTHON, *options), cwd=self.here)
            watched.process.stdout.readline()
            self.cistern("trim", name)
            watched.stop()

    def test_another_containers_process(self):
        if os.geteuid():
            self.skipTest("only root makes namespaces of processes")
        script = 'mount -t tmpfs none /dev/shm; "$0"'
        watched = self.watch("thread", program=("unshare", "-pfm", "--mount-proc", "sh", "-c", script, WATCHED))
        watched.do("allocate device 1000")
        inside = [pid for pid in self.listed() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "watched\n"
                  and "\t" in [line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                               if line.startswith("NSpid:")][0].split(":")[1].strip()]
        self.assertEqual(len(inside), 1)
        self.assertNotEqual(inside[0], watched.pid)
        self.cistern("snapshot", inside[0], "-o", "inside.json")
        self.assertEqual(json.loads((self.here / "inside.json").read_text())["kinds"]["device:0"]["live_blocks"], 1)
        watched.end()


class Wake(Live):
    def rows(self, report):
        return {row["bytes"]: (row.get("before_wake", False), bool(row["frames"])) for row in report["leaks"]
                if row["kind"] == "device:0"}

    def end(self, watched, path):
        watched.end()
        return json.loads(path.read_text())

    def watch_asleep(self, how, **environment):
        path = self.here / "report.json"
        return path, Watched(self, environment={"CISTERN_WAKE": how, "CISTERN_REPORT": str(path),
                                                "CISTERN_REPORT_FORMAT": "both", **environment})

    def test_by_the_command(self):
        path, watched = self.watch_asleep("command", CISTERN_LIVE="thread")
        watched.do(f"allocate device {MIB}")
        self.assertEqual(self.cistern("wake", watched.pid).stderr,
                         f"cistern: pid {watched.pid} (watched) notes call sites from now on\n")
        self.assertEqual(self.cistern("wake", watched.pid).stderr,
                         f"cistern: pid {watched.pid} (watched) was awake already\n")
        watched.do(f"allocate device {2 * MIB}")
        report = self.end(watched, path)
        self.assertEqual(self.rows(report), {MIB: (True, False), 2 * MIB: (False, True)})
        self.assertGreater(report["sites"]["woke_at_s"], 0)
        self.assertIn(", from before the wake", report["text"])
        self.assertRegex(report["text"], r"sites=\S+ since the wake at ")

    def test_the_command_needs_no_other_option(self):
        path, watched = self.watch_asleep("command")
        watched.do(f"allocate device {MIB}")
        waking = subprocess.Popen([CISTERN, "wake", str(watched.pid)], env=ENVIRONMENT, stderr=subprocess.PIPE,
                                  text=True)
        time.sleep(0.2)
        watched.do("call")
        self.assertIn("from now on", waking.communicate(timeout=30)[1])
        watched.do(f"allocate device {2 * MIB}")
        self.assertEqual(self.rows(self.end(watched, path)), {MIB: (True, False), 2 * MIB: (False, True)})

    def test_by_a_signal(self):
        for how in ("USR1", "USR2"):
            path, watched = self.watch_asleep(how)
            watched.do(f"allocate device {MIB}")
            watched.process.send_signal(getattr(signal, "SIG" + how))
            watched.do("call")
            watched.do(f"allocate device {2 * MIB}")
            self.assertEqual(watched.do("threads"), "1")
            self.assertEqual(self.rows(self.end(watched, path)), {MIB: (True, False), 2 * MIB: (False, True)})
            path.unlink()

    def test_without_a_report(self):
        watched = Watched(self, environment={"CISTERN_WAKE": "USR2"})
        watched.do("allocate device 1000")
        watched.process.send_signal(signal.SIGUSR2)
        self.assertEqual(watched.do("call"), "done")
        self.assertEqual(watched.end()[0], 0)

    def test_nobody_wakes_it(self):
        path, watched = self.watch_asleep("command")
        watched.do(f"allocate device {MIB}")
        watched.do(f"allocate host {64 * MIB}")
        report = self.end(watched, path)
        self.assertEqual(self.rows(report), {MIB: (True, False)})
        self.assertTrue(report["sites"]["asleep"])
        self.assertEqual(report["sites"]["count"], 0)
        self.assertEqual([row for row in report["leaks"] if row["kind"] == "host"], [])
        self.assertIn("asleep (CISTERN_WAKE)", report["text"])

    def test_host_memory_of_before_is_counted(self):
        path, watched = self.watch_asleep("USR2", CISTERN_SITES="all")
        watched.do(f"allocate host {64 * MIB}")
        watched.process.send_signal(signal.SIGUSR2)
        watched.do(f"allocate host {32 * MIB}")
        report = self.end(watched, path)
        self.assertGreaterEqual(report["kinds"]["host"]["peak_bytes"], 96 * MIB)
        largest = max((row["bytes"] for row in report["leaks"] if row["kind"] == "host"), default=0)
        self.assertEqual(largest, 32 * MIB)
        self.assertGreaterEqual(report["host_without_site"]["bytes"], 64 * MIB)
        self.assertTrue(report["sites"]["mode"].endswith("host:all-since-wake"), report["sites"])

    def test_a_gate_is_not_fooled(self):
        for gate in ("lost", "growing"):
            path, watched = self.watch_asleep("USR2", CISTERN_SITES="all", CISTERN_FAIL_ON=gate)
            watched.do(f"allocate host {64 * MIB}")
            code, _ = watched.end()
            self.assertEqual((code, json.loads(path.read_text())["cistern"]["gate"]["outcome"]), (24, "undecided"))
            path.unlink()

    def test_a_program_that_has_the_signal_keeps_it(self):
        script = ("import signal, sys\nsignal.signal(signal.SIGUSR2, lambda *_: print('mine', flush=True))\n"
                  "print('ready', flush=True)\nsys.stdin.readline()\n")
        watched = Watched(self, program=(PYTHON, "-c", script), environment={"CISTERN_WAKE": "USR2"})
        self.assertEqual(watched.process.stdout.readline(), "ready\n")
        watched.process.send_signal(signal.SIGUSR2)
        self.assertEqual(watched.process.stdout.readline(), "mine\n")


    def test_by_a_signal_in_the_first_process_of_a_container(self):
        if os.geteuid():
            self.skipTest("only root makes namespaces of processes")
        path = self.here / "report.json"
        script = "import os, signal\nassert os.getpid() == 1\nos.kill(1, signal.SIGUSR2)\n"
        watched = Watched(self, program=("unshare", "-pf", "--mount-proc", PYTHON, "-c", script),
                          environment={"CISTERN_WAKE": "USR2", "CISTERN_REPORT": str(path),
                                       "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(watched.process.wait(timeout=60), 0)
        woken = [json.loads(file.read_text())["sites"] for file in self.here.glob("report*json*")]
        self.assertEqual(sorted("woke_at_s" in sites for sites in woken), [False, True], woken)

    def test_by_a_signal_as_a_layer(self):
        path = self.here / "report.json"
        script = ("import os, signal\nimport pyopencl as cl\n"
                  "context = cl.Context(cl.get_platforms()[0].get_devices())\nos.kill(os.getpid(), signal.SIGUSR2)\n"
                  "buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20)\n")
        watched = Watched(self, program=(PYTHON, "-c", script),
                          environment={"LD_PRELOAD": "", "OPENCL_LAYERS": SHIM, "CISTERN_WAKE": "USR2",
                                       "CISTERN_REPORT": str(path), "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(watched.process.wait(timeout=60), 0)
        self.assertIn("woke_at_s", json.loads(path.read_text())["sites"])


class Views(Live):
    def test_one_process(self):
        watched = self.watch("thread")
        watched.do(f"allocate device {3 * MIB}")
        watched.do(f"allocate pinned {MIB}")
        text = self.cistern("top", watched.pid).stdout
        self.assertRegex(text, rf"^watched  pid {watched.pid}  \d+ s  call sites: gpu:all")
        self.assertRegex(text, r"(?m)^device:0 +3\.0 MiB +0 B +3\.0 MiB +1 ")
        self.assertRegex(text, r"(?m)^ +3\.0 MiB +1  device:0  ")

    def test_what_grows(self):
        watched = self.watch("thread")
        watched.do(f"allocate device {MIB}")
        screen = Terminal(self, [CISTERN, "top", str(watched.pid), "-d", "0.3"])
        screen.wait_for("device:0")
        for _ in range(8):
            watched.do(f"allocate device {MIB}")
            time.sleep(0.1)
        screen.wait_for("GROWS BY")
        screen.wait_for("MiB/s")
        screen.leave("q")

    def test_all_processes(self):
        first, second = self.watch("thread"), self.watch()
        first.do(f"allocate device {MIB}")
        second.do("allocate device 1000")
        lines = self.cistern("top").stdout.splitlines()
        self.assertEqual(lines[0].split(), "PID PROGRAM RANK GPU LIVE CACHED PEAK HOST LIVE FAILED".split())
        rows = {line.split()[0]: line.split()[1:] for line in lines}
        self.assertEqual(rows[str(first.pid)][:4], ["watched", "-", "1.0", "MiB"])
        self.assertEqual(rows[str(second.pid)], ["watched", "did", "not", "answer"])

    def test_more_processes_than_lines(self):
        sleeping = [Watched(self, program=("sleep", "60"), environment={"CISTERN_LIVE": "thread"}) for _ in range(70)]
        pids = {one.pid for one in sleeping}
        self.assertTrue(wait_until(lambda: pids <= set(self.listed())), "without a terminal all are listed")
        screen = Terminal(self, [CISTERN, "top", "-d", "0.2"])  # of 24 lines
        screen.wait_for(" more")
        screen.leave("q")
        self.assertGreaterEqual(int(re.findall(r"(\d+) more", screen.seen)[0]), 70 - 22)

    def test_a_terminal_is_left_as_it_was(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        for how in ("q", signal.SIGINT, signal.SIGTERM, "process ends"):
            screen = Terminal(self, [CISTERN, "top", str(watched.pid), "-d", "0.2"])
            before = screen.settings
            screen.wait_for("device:0")
            if how == "process ends":
                watched.end()
                screen.leave(None, code=3)
            else:
                screen.leave(how)
            self.assertEqual(screen.settings_now(), before, how)
            self.assertEqual(screen.seen.count("\x1b[?1049h"), screen.seen.count("\x1b[?1049l"), how)

    def test_it_can_be_stopped(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        screen = Terminal(self, [CISTERN, "top", str(watched.pid), "-d", "0.2"])
        screen.wait_for("device:0")
        os.kill(screen.process.pid, signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: fields_of_state(screen.process.pid)[0] == "T"))
        self.assertEqual(screen.settings_now(), screen.settings)
        os.kill(screen.process.pid, signal.SIGCONT)
        screen.seen = ""
        screen.wait_for("device:0")
        screen.leave("q")

    def test_metrics(self):
        from prometheus_client.openmetrics import parser as openmetrics
        from prometheus_client import parser as prometheus
        watched, idle = self.watch("thread"), self.watch()
        watched.do(f"allocate device {3 * MIB}")
        watched.do(f"allocate pinned {MIB}")
        watched.do("free")
        idle.do("allocate device 1000")
        for parser, options in ((prometheus, ()), (openmetrics, ("--openmetrics",))):
            text = self.cistern("metrics", "--wait", "0.5", *options).stdout
            values = {(sample.name, *sorted(sample.labels.items())): sample.value
                      for family in parser.text_string_to_metric_families(text) for sample in family.samples
                      if sample.labels["pid"] in (str(watched.pid), str(idle.pid))}
            own = {"pid": str(watched.pid), "program": "watched"}

            def value(name, **labels):
                return values[(name, *sorted({**own, **labels}.items()))]
            self.assertEqual(value("cistern_up"), 1)
            self.assertEqual(value("cistern_bytes", kind="device", device="0", state="live"), 3 * MIB)
            self.assertEqual(value("cistern_bytes", kind="pinned", state="cached"), MIB)
            self.assertEqual(value("cistern_blocks", kind="pinned", state="live"), 0)
            self.assertEqual(value("cistern_allocations_total", kind="device", device="0"), 1)
            self.assertEqual(value("cistern_pool_misses_total", kind="pinned"), 1)
            self.assertEqual(values[("cistern_up", ("pid", str(idle.pid)), ("program", "watched"))], 0)

    def test_names_of_any_bytes(self):
        from prometheus_client import parser
        script = ("import ctypes, sys\nlibc = ctypes.CDLL(None)\nfor line in sys.stdin:\n"
                  "    libc.prctl(15, bytes.fromhex(line))\n    print('done', flush=True)\n")
        watched = self.watch("thread", program=(PYTHON, "-c", script))
        for name, shown in ((b"a\n  1 b\x1b[31m", "a?  1 b?[31m"), (b"tr\xc3\xa4\xff\xc3", "tr\u00e4??"),
                            (b'"q\\', '"q\\')):
            self.assertEqual(watched.do(name.hex()), "done")
            listed = self.cistern("top").stdout
            self.assertRegex(listed, rf"(?m)^ *{watched.pid} {re.escape(shown)} ")
            self.assertNotIn("\n  1 b", listed)
            text = self.cistern("metrics", watched.pid).stdout
            programs = {sample.labels["program"] for family in parser.text_string_to_metric_families(text)
                        for sample in family.samples}
            self.assertEqual(programs, {shown})

    def test_those_that_do_not_answer_are_waited_for_together(self):
        program = self.here / f"idle{os.getpid()}"  # tests beside this one watch others
        program.symlink_to(pathlib.Path(WATCHED).resolve())
        idle = [self.watch(program=(str(program),)) for _ in range(6)]
        for one in idle:
            one.do("allocate device 1000")
        begin = time.monotonic()
        self.cistern("metrics", program.name, "--wait", "1", code=3)
        self.assertLess(time.monotonic() - begin, 3)

    def test_metrics_for_a_collector(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        target = self.here / "cistern.prom"
        target.write_text("old")
        self.cistern("metrics", watched.pid, "-o", target)
        self.assertIn("cistern_up", target.read_text())
        self.assertEqual([path.name for path in self.here.iterdir()], ["cistern.prom"])

    def test_a_run_can_be_watched(self):
        environment = {**ENVIRONMENT, "LIBCISTERN_LIBRARY": SHIM, "LD_LIBRARY_PATH": SIMULATOR}
        run = subprocess.Popen([CISTERN, "run", "--", WATCHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=self.here, env=environment)
        run.stdin.write("allocate device 1000\n")
        run.stdin.flush()
        self.assertEqual(run.stdout.readline(), "done\n")
        child = int(subprocess.run(["pgrep", "-P", str(run.pid), "watched"], capture_output=True, text=True).stdout)
        looking = subprocess.Popen([CISTERN, "top", str(child)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(0.2)
        run.stdin.write("call\nend exit\n")
        run.stdin.close()
        looking.wait(timeout=20)
        self.assertEqual(run.wait(timeout=20), 0)
        run.stdout.close()
        run.stderr.close()
        looking.stdout.close()


class Hard(Live):
    def test_busy_threads_and_forks_beside_looks(self):
        for live in ("on", "thread"):
            watched = self.watch(live)
            watched.do("allocate device 1000")
            watched.send("churn 3")
            end = time.monotonic() + 3
            answers = 0
            while time.monotonic() < end:
                answers += subprocess.run([CISTERN, "top", str(watched.pid)], capture_output=True,
                                          env=ENVIRONMENT).returncode == 0
                subprocess.run([CISTERN, "trim", str(watched.pid)], capture_output=True, env=ENVIRONMENT)
            self.assertEqual(watched.process.stdout.readline(), "done\n")
            self.assertGreater(answers, 3)
            self.assertEqual(watched.end(), (0, ""))

    def test_the_process_ends_beside_looks(self):
        for round_ in range(20):
            watched = self.watch("thread", environment={"CISTERN_REPORT": str(self.here / f"{round_}.json"),
                                                        "CISTERN_REPORT_FORMAT": "json"})
            watched.do("allocate device 1000")
            page = watched.page()
            looking = [subprocess.Popen([CISTERN, what, str(watched.pid), "--wait", "5"], stderr=subprocess.DEVNULL,
                                        cwd=self.here, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
                       for what in ("snapshot", "metrics")]
            time.sleep(0.002 * round_)
            self.assertEqual(watched.end(("exit", "_exit")[round_ % 2])[0], 0)
            for one in looking:
                one.wait(timeout=30)
            self.assertEqual([path.name for path in FOLDER.iterdir() if path.name.startswith(page.name)], [])
            self.assertEqual(json.loads((self.here / f"{round_}.json").read_text())["cistern"]["pid"], watched.pid)

    def test_what_is_no_page(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        page = watched.page()
        good = page.read_bytes()
        for begin, said in ((b"XXXXXXXX", "no such process"), (b"CISTLIVE" + struct.pack("<I", 99), "another version")):
            with page.open("r+b") as file:
                file.write(begin)
            self.assertIn(said, self.cistern("trim", watched.pid, code=2).stderr)
            self.assertNotIn(watched.pid, self.listed())
        for bad in (b"", good[:100], good):  # not the file that the process has
            (FOLDER / "other").write_bytes(bad)
            os.replace(FOLDER / "other", page)
            self.cistern("trim", watched.pid, code=2)
            self.assertNotIn(watched.pid, self.listed())
        self.assertEqual(watched.do("call"), "done")

    def test_what_is_no_report(self):
        """One that another process of the user put there."""
        watched = self.watch("on")
        watched.do("allocate device 1000")
        page = watched.page()
        for text in ("", "{", "[]", "null", '{"cistern": 5}', "\0" * 1000, '{"cistern": {"pid": -1}}'):
            pathlib.Path(f"{page}.json").write_text(text)
            data = bytearray(page.read_bytes())
            data[128:132] = struct.pack("<I", struct.unpack("<I", data[68:72])[0] + 1)  # answered, before it was asked
            with page.open("r+b") as file:
                file.write(data)
            self.cistern("top", watched.pid, code=3)
            self.cistern("metrics", watched.pid, code=3)

    def test_what_another_user_put_there(self):
        """Root looks at processes of users whom it does not trust."""
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        page = watched.page()
        report = pathlib.Path(f"{page}.json")
        secret = self.here / "secret"
        secret.write_text("{}")
        stop = page.read_bytes()[:68] + b"\0" * 4028
        for put in (lambda: os.mkfifo(report), lambda: report.symlink_to(secret), lambda: report.mkdir()):
            os.kill(watched.pid, signal.SIGSTOP)
            report.unlink(missing_ok=True)
            put()
            data = bytearray(stop)
            data[128:132] = struct.pack("<I", 1 << 20)  # answered, before it was asked
            with page.open("r+b") as file:
                file.write(data)
            begin = time.monotonic()
            self.cistern("metrics", watched.pid, code=3)
            self.assertLess(time.monotonic() - begin, 5)
            report.rmdir() if report.is_dir() and not report.is_symlink() else report.unlink()

    def test_another_users_page_of_the_same_name(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        page = watched.page()
        others = [SHARED_MEMORY / f"cistern-{name}" for name in ("0a", "other", "zz")]
        for folder in others:
            folder.mkdir(exist_ok=True)
            self.addCleanup(folder.rmdir)
            copy = folder / page.name
            copy.write_bytes(page.read_bytes())
            self.addCleanup(copy.unlink)
        self.assertEqual(self.listed().count(watched.pid), 1)
        self.assertEqual(self.kinds(watched)["device:0"]["live_blocks"], 1)

    def test_a_page_that_is_cut_ends_no_command(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        os.kill(watched.pid, signal.SIGSTOP)  # it would end
        looking = subprocess.Popen([CISTERN, "metrics", str(watched.pid), "--wait", "1"], env=ENVIRONMENT,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        os.truncate(watched.page(), 0)
        self.assertEqual(looking.wait(timeout=20), 3)

    def test_requests_that_do_not_exist_change_nothing(self):
        watched = self.watch("thread")
        watched.do("allocate device 1000")
        with watched.page().open("r+b") as file:
            for _ in range(200):
                file.seek(64)
                file.write(os.urandom(64))
                file.flush()
        self.assertEqual(watched.do("call"), "done")
        self.assertEqual(watched.end()[0], 0)

    def test_as_a_layer(self):
        script = self.here / "layered.py"
        script.write_text(
            "import sys\nimport pyopencl as cl\ncontext = cl.Context(cl.get_platforms()[0].get_devices())\n"
            "blocks = [cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20)]\n"
            "for line in sys.stdin:\n"
            "    blocks.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20))\n    print('done', flush=True)\n")
        for live in ("on", "thread"):
            watched = self.watch(live, program=(PYTHON, str(script)),
                                 environment={"LD_PRELOAD": "", "OPENCL_LAYERS": SHIM})
            self.assertEqual(watched.do("allocate"), "done", watched.process.poll())
            looking = subprocess.Popen([CISTERN, "snapshot", str(watched.pid), "-o", f"{live}.json"], cwd=self.here,
                                       env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
            time.sleep(0.3)
            if live == "on":
                watched.do("allocate")
            self.assertIn("next: cistern report", looking.communicate(timeout=60)[1])
            kinds = json.loads((self.here / f"{live}.json").read_text())["kinds"]
            self.assertIn(kinds["opencl"]["live_blocks"], (2, 3))

    def test_behind_and_before_another_interposer(self):
        libraries = [path for path in pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
        libraries += [path for path in pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2")]
        self.assertTrue(libraries, "libfaketime or libjemalloc2 is missing")
        for library in libraries:
            for preload in (f"{SHIM}:{library}", f"{library}:{SHIM}"):
                watched = self.watch("thread", environment={"LD_PRELOAD": preload, "FAKETIME": "-100d"})
                self.assertEqual(watched.do("allocate device 1000"), "done", preload)
                self.assertEqual(self.kinds(watched)["device:0"]["live_blocks"], 1)
                self.cistern("trim", watched.pid)
                self.assertEqual(watched.end()[0], 0)


class Terminal:
    """A program on a terminal of its own, and what it has written there."""

    def __init__(self, test, command):
        self.test = test
        self.outer, inner = pty.openpty()
        test.addCleanup(os.close, self.outer)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.settings = termios.tcgetattr(inner)
        self.inner = inner
        test.addCleanup(os.close, inner)
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=ENVIRONMENT,
                                        start_new_session=True)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        self.seen = ""

    def settings_now(self):
        return termios.tcgetattr(self.inner)

    def read(self, seconds):
        if select.select([self.outer], [], [], seconds)[0]:
            self.seen += os.read(self.outer, 65536).decode()

    def wait_for(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            self.read(0.2)
        self.test.assertIn(text, self.seen)

    def leave(self, how, code=0):
        if isinstance(how, str):
            os.write(self.outer, how.encode())
        elif how:
            os.kill(self.process.pid, how)
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        self.read(0.1)
        self.test.assertEqual(self.process.poll(), code)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
