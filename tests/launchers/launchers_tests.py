"""Programs in containers and under the launchers of parallel jobs: one report for each process that has memory to tell
of, none lost, under its rank, whichever way it ends; and launchers themselves say nothing."""
import argparse
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import report_checks  # noqa: E402

ARGUMENTS = argparse.Namespace()
RANKS = 4
TIME_LIMIT_S = 100


class Launchers(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o777)
        # PoCL keeps its kernels, and hwloc what it knows, somewhere; not in this user's home.
        self.clean = {name: value for name, value in os.environ.items()
                      if not name.startswith(("CISTERN", "LD_", "OMPI_", "PMI", "SLURM_"))}

    def preloaded(self, report, **options):
        return {"LD_PRELOAD": str(ARGUMENTS.shim), "CISTERN_REPORT": report, "CISTERN_REPORT_FORMAT": "json", **options}

    def start(self, *command, **environment):
        return subprocess.Popen([str(word) for word in command], env=self.clean | environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def ended(self, process, code=0):
        try:
            stdout, stderr = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            self.fail(f"killed after {TIME_LIMIT_S} s: {stdout}\n{stderr}")
        if code is not None:
            self.assertEqual(process.returncode, code, stdout + stderr)
        return stdout, stderr

    def reports(self):
        return {path.name: report_checks.read(path) for path in self.folder.glob("*.json")}

    def check_ranks(self, moments, ranks=RANKS):
        """One report for each rank, with what that rank leaked."""
        reports = self.reports()
        self.assertEqual(sorted(reports), [f"rank{rank}.json" for rank in range(ranks)])
        for rank in range(ranks):
            head, kinds = reports[f"rank{rank}.json"]["cistern"], reports[f"rank{rank}.json"]["kinds"]
            self.assertEqual((head["rank"], head["ranks"], kinds["opencl"]["live_blocks"]), (rank, ranks, rank + 1))
            self.assertIn(head["moment"], moments)
        return reports

    def lines(self, text):
        return sorted(line for line in text.splitlines() if line.startswith(("rank", "cistern")))


class Runs(Launchers):
    """One path for all that a command starts: who has it, and what becomes of the report of an earlier run."""

    def run_all(self, *command, **environment):
        """By file name the head of each report, and what was said."""
        process = self.start(*command, **self.preloaded(f"{self.folder}/x.json"), **environment)
        _, stderr = self.ended(process, code=None)
        return {path.name: json.loads(path.read_text())["cistern"] for path in self.folder.glob("*.json")}, stderr

    def check_names(self, heads, used_gpu_memory):
        """Of those that count the first has the path; all others are numbered."""
        first = min(head["pid"] for head in heads.values() if head["gpu_memory_used"] == used_gpu_memory)
        self.assertEqual({name: head["pid"] for name, head in heads.items()},
                         {"x.json" if head["pid"] == first else f"x.{head['pid']}.json": head["pid"]
                          for head in heads.values()})

    def test_launchers_leave_the_path_to_the_application(self):
        task, script, makefile = str(ARGUMENTS.task), self.folder / "script", self.folder / "Makefile"
        script.write_text(f"#!/bin/sh\n{task}\ntrue\n")
        script.chmod(0o755)
        makefile.write_text(f"all:\n\t{task}; true\n")
        for launcher in (("timeout", "60"), ("sh", "-c", '"$0"; true'), ("nice", "setsid", "-w", "timeout", "60"),
                         ("faketime", "-f", "+1d"), ("fakeroot",), ("unshare", "--fork"), ("stdbuf", "-oL"), (script,),
                         ("bash", "-c", 'date; "$0"; date'), ("make", "-f", makefile),
                         ("python3", "-Sc", "import subprocess, sys; subprocess.run(sys.argv[1:])"),
                         ("sh", "-c", 'echo | xargs "$0"; true')):
            if not shutil.which(launcher[0]):
                continue
            with self.subTest(launcher=launcher):
                heads, stderr = self.run_all(*launcher, *([] if launcher[0] in (script, "make") else [task]))
                self.assertEqual(stderr, "")
                self.assertEqual(heads["x.json"]["command"].split()[0], task)
                self.assertTrue(heads["x.json"]["gpu_memory_used"])
                for name in heads:
                    (self.folder / name).unlink()

    def test_the_path_without_gpu_memory(self):
        """It is not that of what the program started."""
        heads, _ = self.run_all("timeout", "60", sys.executable, "-Sc", "import os; os.system('date')")
        self.assertEqual(heads["x.json"]["command"].split()[0], sys.executable)

    def test_the_first_of_many_at_once(self):
        for number, (commands, used) in enumerate((('"$0" & date & "$0" & date & "$0" & date &', True),
                                                   ("date & date & date & date &", False))):
            heads, stderr = self.run_all("sh", "-c", commands + " wait; exit 0", str(ARGUMENTS.task))
            self.assertEqual((stderr, len(heads)), ("", 7 - 2 * number))
            shell = next(name for name, head in heads.items() if head["command"].startswith("sh "))
            del heads[shell]
            self.check_names(heads, used)
            for path in self.folder.glob("*.json"):
                path.unlink()

    def test_a_user_of_gpu_memory_comes_after_one_of_none(self):
        heads, stderr = self.run_all("sh", "-c", '/bin/date; "$0"; "$0"; exit 0', str(ARGUMENTS.task))
        self.assertEqual((stderr, len(heads)), ("", 4))
        self.check_names(heads, True)

    def test_an_earlier_report_is_set_aside_even_by_a_run_that_is_killed(self):
        first, _ = self.run_all(ARGUMENTS.task)
        aside = f"x.{first['x.json']['pid']}.old.json"
        heads, stderr = self.run_all("sh", "-c", "kill -9 $$")
        path = self.folder / "x.json"
        self.assertEqual((list(heads), stderr),
                         ([aside], f"cistern: the report of an earlier run was moved from {path} to "
                                  f"{self.folder / aside}\n"))
        heads, stderr = self.run_all("timeout", "60", ARGUMENTS.task)
        self.assertEqual((sorted(heads)[-1], len(heads), stderr), ("x.json", 3, ""))

    def test_file_systems_that_lack_flags_links_and_locks(self):
        for link, lock in ((0, 0), (errno.EPERM, errno.EBADF), (errno.ENOSYS, errno.ENOLCK),
                           (errno.EOPNOTSUPP, errno.EOPNOTSUPP), (errno.EPERM, errno.ENOSYS)):
            with self.subTest(link=link, lock=lock):
                command = ARGUMENTS.file_system, link, lock, ARGUMENTS.task
                first, stderr = self.run_all(*command)
                self.assertEqual((list(first), stderr), (["x.json"], ""))
                aside = f"x.{first['x.json']['pid']}.old.json"
                heads, stderr = self.run_all(*command)
                self.assertEqual((sorted(heads), heads[aside]), (sorted((aside, "x.json")), first["x.json"]))
                self.assertIn("the report of an earlier run was moved from ", stderr)
                self.assertEqual(len(list(self.folder.iterdir())), 2)
            for path in self.folder.iterdir():
                path.unlink()

    def test_each_command_that_a_shell_is_given_by_hand_is_a_run(self):
        """Also where it is a launcher of many that started the shell, as make does for "make shell"."""
        makefile = self.folder / "Makefile"
        makefile.write_text("all:\n\t@bash --rcfile /dev/null -o vi\n")
        for command in (("sh",), ("bash", "--rcfile", "/dev/null", "-o", "vi"), ("make", "-f", makefile)):
            with self.subTest(command=command):
                shell = subprocess.Popen(command, env=self.clean | self.preloaded(f"{self.folder}/x.json"), text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                _, stderr = shell.communicate(f"{ARGUMENTS.task}\ntimeout 60 {ARGUMENTS.task}\n", timeout=TIME_LIMIT_S)
                heads = {name: report["cistern"] for name, report in self.reports().items()}
                old = [head["command"] for name, head in heads.items() if name.endswith(".old.json")]
                self.assertEqual(old, [str(ARGUMENTS.task)])
                self.assertIn("the report of an earlier run was moved from ", stderr)
                self.assertTrue(heads["x.json"]["gpu_memory_used"])
            for path in self.folder.glob("*.json"):
                path.unlink()

    @unittest.skipUnless(shutil.which("watch"), "no watch (procps)")
    def test_each_time_that_watch_starts_a_command_is_a_run(self):
        script = self.folder / "script"
        script.write_text(f"#!/bin/sh\n[ ! -e {self.folder}/second ] || kill -INT $PPID\n"
                          f"[ ! -e {self.folder}/first ] || touch {self.folder}/second\ntouch {self.folder}/first\n"
                          f"exec {ARGUMENTS.task}\n")
        script.chmod(0o755)
        process = self.start("watch", "-n", "0.1", "-x", script, **self.preloaded(f"{self.folder}/x.json"),
                             TERM="vt100")
        self.ended(process, code=None)
        old = [report for name, report in self.reports().items() if name.endswith(".old.json")]
        self.assertGreaterEqual(len(old), 1)

    def test_a_path_that_a_call_sets_is_that_of_the_process(self):
        path = self.folder / "x.json"
        call = f"ctypes.CDLL(None).cistern_set_option(b'CISTERN_REPORT', b'{path}')"
        for said in ("", rf"cistern: {path} exists; the report is in {self.folder}/x\.\d+\.json\n"):
            process = self.start(sys.executable, "-Sc", f"import ctypes; {call}", LD_PRELOAD=str(ARGUMENTS.shim),
                                 CISTERN_REPORT_FORMAT="json")
            self.assertRegex(self.ended(process)[1], f"^{said}$")
            self.assertTrue(path.exists())

    def test_a_report_that_an_argument_names_is_there_to_be_read(self):
        first, _ = self.run_all(ARGUMENTS.task)
        heads, stderr = self.run_all("cat", self.folder / "x.json")
        self.assertEqual(heads["x.json"], first["x.json"])
        self.assertRegex(stderr, rf"^cistern: .*/x\.json exists; the report is in {self.folder}/x\.\d+\.json\n$")

    def test_what_is_no_report_stays(self):
        path = self.folder / "x.json"
        for text in ("mine", '{"cistern": "mine"}\n'):
            path.write_text(text)
            process = self.start("timeout", "60", ARGUMENTS.task, **self.preloaded(str(path)))
            stderr = self.ended(process)[1]
            self.assertEqual(path.read_text(), text)
            self.assertRegex(stderr, rf"^cistern: {path} exists; the report is in {self.folder}/x\.\d+\.json\n$")

    def test_a_report_of_several_names_stays(self):
        first, _ = self.run_all(ARGUMENTS.task)
        os.link(self.folder / "x.json", self.folder / "kept")
        heads, stderr = self.run_all(ARGUMENTS.task)
        self.assertEqual(heads["x.json"], first["x.json"])
        self.assertIn("x.json exists; the report is in ", stderr)

    def test_an_empty_file_stays_for_it_may_be_written_to(self):
        """By the program, whose output is there, and by who reads its output."""
        path = self.folder / "x.json"
        with open(path, "w") as output:
            process = self.start("timeout", "60", ARGUMENTS.task, **self.preloaded(str(path)))
            stderr = self.ended(process)[1]
            output.write("mine")
        self.assertEqual(path.read_text(), "mine")
        self.assertRegex(stderr, rf"^cistern: {path} exists; the report is in {self.folder}/x\.\d+\.json\n$")

    def test_nothing_else_is_left_in_the_folder(self):
        self.run_all("timeout", "60", ARGUMENTS.task)
        self.assertEqual([path.name for path in self.folder.iterdir() if not path.name.endswith(".json")], [])


class Containers(Launchers):
    @classmethod
    def setUpClass(cls):
        tried = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "mount", "-t",
                                "tmpfs", "none", "/mnt"], capture_output=True, text=True)
        if tried.returncode != 0:
            raise unittest.SkipTest(f"no namespaces can be made here: {tried.stderr.strip()}")

    def check_one_report(self, stdout, stderr, proc=True, name="report.json"):
        self.assertEqual((stdout, stderr), ("rank 0 of 1\n", ""))
        reports = self.reports()
        self.assertEqual(list(reports), [name])
        report = reports[name]
        self.assertEqual(report["cistern"]["command"], str(ARGUMENTS.task))
        rows = [row for row in report["leaks"] if row["kind"] == "opencl"]
        self.assertEqual([(row["blocks"], row["frames"][0]["function"]) for row in rows], [(1, "leak")])
        self.assertEqual(rows[0]["class"], "lost" if proc else "unclassified")
        self.assertEqual(report["judging"].get("why_not"),
                         None if proc else "/proc is missing or does not show its memory")

    def options(self):
        return self.preloaded(f"{self.folder}/report.json")

    def in_bubblewrap(self, *options):
        if not shutil.which("bwrap"):
            self.skipTest("no bubblewrap")
        set_inside = [word for name, value in self.options().items() for word in ("--setenv", name, value)]
        process = self.start("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", self.folder, self.folder,
                             "--unshare-all", *options, *set_inside, ARGUMENTS.task)
        return self.ended(process)

    def test_bubblewrap(self):
        self.check_one_report(*self.in_bubblewrap("--proc", "/proc"))

    def test_bubblewrap_as_the_first_process(self):
        self.check_one_report(*self.in_bubblewrap("--proc", "/proc", "--as-pid-1"))

    def test_bubblewrap_with_the_outer_proc(self):
        """There its parent's number is another process's."""
        self.check_one_report(*self.in_bubblewrap())

    def test_bubblewrap_without_proc(self):
        self.check_one_report(*self.in_bubblewrap("--tmpfs", "/proc"), proc=False)

    def test_an_earlier_report_without_proc(self):
        """It is not known to be one, so a line says where the new one is."""
        stdout, stderr = self.in_namespaces("mount -t tmpfs none /proc; $TASK; $TASK", "--user", "--map-root-user")
        self.assertEqual(stdout, "rank 0 of 1\n" * 2)
        self.assertRegex(stderr, rf"^cistern: {self.folder}/report\.json exists; the report is in "
                                 rf"{self.folder}/report\.\d+\.json\n$")

    def test_a_starter_with_the_number_that_the_process_has_in_its_namespace(self):
        """The outer /proc shows it, and it is no ancestor of itself: both that and the process are number 1."""
        options = " ".join(f"{name}={value}" for name, value in self.options().items())
        stdout, stderr = self.in_namespaces(
            f"export {options}; exec timeout -s KILL 60 unshare --pid --fork timeout 60 {ARGUMENTS.task}", "--user",
            "--map-root-user", "--mount-proc")
        self.assertEqual((stdout, stderr), ("rank 0 of 1\n", ""))
        self.assertTrue(self.reports()["report.json"]["cistern"]["gpu_memory_used"])

    def in_namespaces(self, script, *options, **environment):
        """`script` in namespaces of its own; $TASK there is the program with its options, and $FOLDER."""
        task = " ".join(["env", *(f"{name}={value}" for name, value in self.options().items()), str(ARGUMENTS.task)])
        process = self.start("unshare", "--mount", "--pid", "--fork", *options, "sh", "-ec", script, TASK=task,
                             FOLDER=str(self.folder), **environment)
        return self.ended(process)

    def test_chroot(self):
        root = self.folder / "root"
        root.mkdir()
        self.check_one_report(*self.in_namespaces(
            f"mount --rbind / {root} && mount -t proc proc {root}/proc && chroot {root} $TASK", "--user",
            "--map-root-user"))

    def test_chroot_without_proc(self):
        root = self.folder / "root"
        root.mkdir()
        self.check_one_report(*self.in_namespaces(
            f"mount --rbind / {root} && mount -t tmpfs none {root}/proc && exec chroot {root} $TASK", "--user",
            "--map-root-user"), proc=False)

    def rootless(self, then):
        """As podman lays a rootless container out: the user is root inside, the root read-only with a writable volume,
        parts of /proc hidden, /tmp and /run fresh."""
        root = self.folder / "root"
        root.mkdir()
        return self.in_namespaces(f"""
mount --rbind / {root}
mount -o remount,bind,ro {root}
mount --bind $FOLDER {root}$FOLDER
mount -t proc proc {root}/proc
for hidden in kcore keys timer_list; do
  [ ! -e {root}/proc/$hidden ] || mount --bind /dev/null {root}/proc/$hidden
done
mount -t tmpfs none {root}/run
{then.format(root=root)}""", "--user", "--map-root-user", "--uts", "--ipc")

    def test_rootless(self):
        self.check_one_report(*self.rootless("exec chroot {root} $TASK"))

    def test_rootless_with_children(self):
        """The container's first process is a shell without the preload."""
        self.check_one_report(*self.rootless("chroot {root} sh -c \"$TASK; true\""))

    def test_rootless_where_the_report_cannot_be_written(self):
        stdout, stderr = self.rootless("mount --bind {root}/usr {root}$FOLDER; exec chroot {root} $TASK")
        self.assertEqual(stdout, "rank 0 of 1\n")
        self.assertRegex(stderr, rf"^cistern: cannot write the report to {self.folder}/report\.json: Read-only file "
                         r"system; the report will follow here\n\{\n")

    def test_a_user_that_is_not_root(self):
        self.check_one_report(*self.in_namespaces("$TASK", "--user", "--map-user=1234", "--map-group=1234",
                                                  "--mount-proc"))


class Slurm(Launchers):
    def srun(self, *arguments, ranks=RANKS, environment=None, report=None):
        if environment is None:
            environment = self.preloaded(report or f"{self.folder}/rank%r.json")
        return self.start(HERE / "srun", "-n", ranks, *arguments, **environment)

    def test_one_report_for_each_task(self):
        stdout, stderr = self.ended(self.srun(ARGUMENTS.task))
        self.assertEqual((self.lines(stdout), stderr), ([f"rank {rank} of 4" for rank in range(RANKS)], ""))
        self.check_ranks({"exit"})

    def test_the_preload_for_the_tasks_only(self):
        exported = ",".join(["ALL", *(f"{name}={value}" for name, value in
                                      self.preloaded(f"{self.folder}/rank%r.json").items())])
        self.ended(self.srun("--export", exported, ARGUMENTS.task, environment={}))
        self.check_ranks({"exit"})

    def test_the_time_limit(self):
        _, stderr = self.ended(self.srun("--time", 3, ARGUMENTS.task, "wait", -1), code=signal.SIGTERM)
        self.assertEqual(stderr, "")
        self.check_ranks({"SIGTERM"})

    def test_one_path_for_all(self):
        """Nobody's report is lost: whoever comes later puts its process id into the name."""
        self.ended(self.srun(ARGUMENTS.task, report=f"{self.folder}/report.json"))
        reports = self.reports()
        tasks = [report for report in reports.values() if report["cistern"]["command"] == str(ARGUMENTS.task)]
        self.assertEqual(sorted(report["cistern"]["rank"] for report in tasks), list(range(RANKS)))

    def test_the_ranks_of_other_launchers(self):
        for name, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                           ("PMIX_RANK", None)):
            with self.subTest(name=name):
                self.ended(self.start(ARGUMENTS.task, **self.preloaded(f"{self.folder}/%r.json"),
                                      **{name: "3"}, **({size: "7"} if size else {})))
                report = self.reports()["3.json"]
                self.assertEqual((report["cistern"]["rank"], report["cistern"].get("ranks")), (3, 7 if size else None))
                (self.folder / "3.json").unlink()


class Mpi(Launchers):
    def mpirun(self, *arguments, **environment):
        more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
        # A loaded machine may not manage four reports in the second that Open MPI leaves by default.
        return self.start(ARGUMENTS.mpirun, "--mca", "odls_base_sigkill_timeout", 5, "--oversubscribe", "-n", RANKS,
                          *arguments,
                          **(more | (environment or self.preloaded(f"{self.folder}/rank%r.json"))))

    def said_by_us(self, stderr):
        """Without the frames that mpirun shows when it crashes in its own end, as it now and then does without us."""
        return [line for line in stderr.splitlines()
                if "cistern" in line.lower() and not re.match(r"\[[^]]+:\d+\] \[ *\d+\] ", line)]

    def wait_for(self, process, words):
        """Lines of its output until one that has them."""
        for line in process.stdout:
            if words in line:
                return

    def test_one_report_for_each_rank(self):
        stdout, stderr = self.ended(self.mpirun(ARGUMENTS.mpi_task))
        self.assertEqual((self.lines(stdout), stderr), ([f"rank {rank} of 4" for rank in range(RANKS)], ""))
        self.check_ranks({"exit"})

    def test_the_preload_for_the_ranks_only(self):
        passed = [word for name, value in self.preloaded(f"{self.folder}/rank%r.json").items()
                  for word in ("-x", f"{name}={value}")]
        self.ended(self.mpirun(*passed, ARGUMENTS.mpi_task, CISTERN=""))
        self.check_ranks({"exit"})

    def test_without_an_option_each_rank_reports_on_stderr_and_nobody_else(self):
        _, stderr = self.ended(self.mpirun(ARGUMENTS.mpi_task, LD_PRELOAD=str(ARGUMENTS.shim)))
        heads = re.findall(r"^cistern .* rank (\d)/4\b", stderr, re.MULTILINE)
        self.assertEqual(sorted(heads), [str(rank) for rank in range(RANKS)])
        self.assertEqual(stderr.count("VERDICT"), RANKS)

    def test_a_job_without_gpu_memory_is_silent(self):
        self.assertEqual(self.ended(self.mpirun("true", LD_PRELOAD=str(ARGUMENTS.shim))), ("", ""))

    def test_codes_that_leaks_decide_cost_no_report_and_no_output(self):
        """Open MPI kills all others as soon as a rank ends with a code, of which one has it, or all."""
        for fails_on in ("any", "any:200KiB"):
            for _ in range(2):
                stdout, stderr = self.ended(self.mpirun(ARGUMENTS.mpi_task, **self.preloaded(
                    f"{self.folder}/rank%r.json", CISTERN_FAIL_ON=fails_on)), code=23)
                self.assertEqual(self.lines(stdout), [f"rank {rank} of 4" for rank in range(RANKS)])
                self.assertEqual(self.said_by_us(stderr), [])
                reports = self.check_ranks({"exit"})
                failed = [rank for rank in range(RANKS) if "exit_code" in reports[f"rank{rank}.json"]["cistern"]]
                self.assertEqual(failed, [3] if ":" in fails_on else [0, 1, 2, 3])
                for path in self.folder.glob("*"):
                    path.unlink()

    def test_what_a_rank_starts_has_its_code_and_does_not_wait(self):
        """The launcher does not see its end, but the rank itself may go by it."""
        script = f"{ARGUMENTS.task}; echo code $?; exit 0"
        stdout, _ = self.ended(self.mpirun("sh", "-c", script, **self.preloaded(
            "none", CISTERN_FAIL_ON="any", CISTERN_FAIL_CHILDREN="off")))
        self.assertEqual(stdout.count("code 23\n"), RANKS, stdout)

    def test_abort(self):
        """Open MPI kills all others as soon as the first rank has died."""
        _, stderr = self.ended(self.mpirun(ARGUMENTS.mpi_task, "abort", 2), code=7)
        self.assertEqual(self.said_by_us(stderr), [])
        reports = self.check_ranks({"_exit", "SIGTERM"})
        self.assertEqual(reports["rank2.json"]["cistern"]["moment"], "_exit")

    def test_a_rank_does_not_die_before_the_others_had_their_time(self):
        process = self.start(ARGUMENTS.task, "wait", -1, **self.preloaded(f"{self.folder}/rank%r.json"),
                             OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
        self.wait_for(process, "rank 0 waits")
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        self.ended(process, code=-signal.SIGTERM)
        self.assertGreater(time.monotonic() - began, 0.9)
        self.assertEqual(self.reports()["rank0.json"]["cistern"]["moment"], "SIGTERM")

    def test_a_rank_that_is_ended(self):
        process = self.mpirun(ARGUMENTS.mpi_task, "wait", 1)
        self.wait_for(process, "rank 1 waits")
        rank = subprocess.run(["pgrep", "-P", str(process.pid), "-f", str(ARGUMENTS.mpi_task)], capture_output=True,
                              text=True, check=True).stdout.split()
        for child in rank:
            environment = pathlib.Path(f"/proc/{child}/environ").read_text()
            if "\0OMPI_COMM_WORLD_RANK=1\0" in environment:
                os.kill(int(child), signal.SIGTERM)
        _, stderr = self.ended(process, code=None)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.said_by_us(stderr), [])
        reports = self.check_ranks({"SIGTERM", "exit"})
        self.assertEqual(reports["rank1.json"]["cistern"]["moment"], "SIGTERM")

    def test_mpirun_is_ended(self):
        process = self.mpirun(ARGUMENTS.mpi_task, "wait", 3)
        self.wait_for(process, "rank 3 waits")
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGTERM)
        _, stderr = self.ended(process, code=None)
        self.assertEqual(self.said_by_us(stderr), [])
        self.check_ranks({"SIGTERM", "exit"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "task", "file-system", "mpi-task", "mpirun"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
