#!/usr/bin/python3
"""Programs that the distribution guards with seccomp filters, or whose plug-ins bind deeply, plain and preloaded: a
login through OpenSSH's server, chrony with its filter, PHP. --shim FILE; the rest is unittest's."""
import argparse
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ARGUMENTS = argparse.Namespace()
TIME_LIMIT_S = 60


def environment(preloaded):
    kept = {name: value for name, value in os.environ.items()
            if name != "LD_PRELOAD" and not name.startswith("CISTERN_")}
    return kept | ({"LD_PRELOAD": ARGUMENTS.shim} if preloaded else {})


def path_of(command):
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class DaemonTest(unittest.TestCase):
    def setUp(self):
        # Not in /tmp: sshd wants every folder above a key to be safe from other users.
        folder = tempfile.TemporaryDirectory(dir=pathlib.Path.home())
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def require(self, *commands):
        for command in commands:
            if not path_of(command):
                self.skipTest(f"{command} is not installed: scripts/setup --long")

    def run_both(self, *command, **more):
        """Output and status of the preloaded run, which are the plain one's."""
        results = []
        for preloaded in (False, True):
            done = subprocess.run(list(map(str, command)), env=environment(preloaded), capture_output=True, text=True,
                                  errors="replace", timeout=TIME_LIMIT_S, **more)
            results.append((done.stdout, done.stderr, done.returncode))
        self.assertEqual(results[0], results[1], command)
        return results[1]


class OpenSsh(DaemonTest):
    """A server of our own with the distribution's privilege separation and seccomp sandbox, on the loopback."""

    def setUp(self):
        super().setUp()
        self.require("sshd", "ssh", "ssh-keygen")
        if os.geteuid():
            self.skipTest("privilege separation needs root")
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def server(self, preloaded):
        config = self.folder / "config"
        config.write_text(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\n"
                          f"AuthorizedKeysFile {self.folder}/user.pub\nUsePAM no\nPasswordAuthentication no\n"
                          "PermitRootLogin yes\nSubsystem sftp internal-sftp\n")
        with open(self.folder / "log", "w") as log:
            server = subprocess.Popen([path_of("sshd"), "-D", "-e", "-f", config], env=environment(preloaded),
                                      stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return server
            time.sleep(0.1)
        self.fail("the server does not answer:\n" + (self.folder / "log").read_text())

    def login(self, command):
        done = subprocess.run(["ssh", "-F", "none", "-i", self.folder / "user", "-p", str(self.port), "-o",
                               "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.folder}/known", "-o",
                               "BatchMode=yes", f"{getpass.getuser()}@127.0.0.1", command], env=environment(False),
                              capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S,
                              stdin=subprocess.DEVNULL)
        return done.stdout, done.returncode, done.stderr + (self.folder / "log").read_text()

    def test_logins_with_a_key(self):
        for preloaded in (False, True):
            server = self.server(preloaded)
            for i in range(3):
                out, status, more = self.login(f"echo login {i}; exit {i}")
                self.assertEqual((out, status), (f"login {i}\n", i), f"preloaded: {preloaded}\n{more}")
            server.kill()
            server.wait()

    def test_logins_at_once(self):
        self.server(True)
        clients = [subprocess.Popen(["ssh", "-F", "none", "-i", self.folder / "user", "-p", str(self.port), "-o",
                                     "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
                                     "BatchMode=yes", "-o", "LogLevel=ERROR", f"{getpass.getuser()}@127.0.0.1",
                                     "seq 2000"], env=environment(False), stdout=subprocess.PIPE, text=True,
                                    stdin=subprocess.DEVNULL) for _ in range(5)]
        for client in clients:
            out, _ = client.communicate(timeout=TIME_LIMIT_S)
            self.assertEqual((client.returncode, len(out.splitlines())), (0, 2000), (self.folder / "log").read_text())


class Chrony(DaemonTest):
    def test_its_filter_at_both_levels(self):
        self.require("chronyd")
        if os.geteuid():
            self.skipTest("chronyd needs root")
        config = self.folder / "chrony.conf"
        # No server and no port: it only starts, filters itself, waits for the time limit and ends.
        config.write_text(f"cmdport 0\nport 0\npidfile {self.folder}/pid\nuser root\n")
        for level in ("0", "1", "-1", "2"):
            with self.subTest(level=level):
                results = []
                for preloaded in (False, True):
                    done = subprocess.run([path_of("chronyd"), "-d", "-x", "-F", level, "-t", "2", "-f", config],
                                          env=environment(preloaded), capture_output=True, text=True,
                                          timeout=TIME_LIMIT_S)
                    results.append(done.returncode)
                    self.assertIn("exiting", done.stderr)
                self.assertEqual(results[0], results[1], done.stderr)


class Php(DaemonTest):
    SCRIPT = ("$t = []; for ($i = 0; $i < 20000; $i++) $t[\"k$i\"] = str_repeat('x', $i % 100);"
              "echo count($t), ' ', strlen(json_encode($t)), ' ', preg_match_all('/x+/', implode(',', $t)), ' ',"
              " crc32(serialize($t)), ' ', strlen(gzcompress(serialize($t))), \"\\n\"; exit(3);")

    def test_a_script(self):
        self.require("php")
        out, _, status = self.run_both("php", "-r", self.SCRIPT)
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("20000 "), out)

    def test_all_modules_are_there(self):
        self.require("php")
        out, err, status = self.run_both("php", "-m")
        self.assertEqual((err, status), ("", 0))
        self.assertIn("json", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", required=True)
    _, rest = parser.parse_known_args(namespace=ARGUMENTS)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
