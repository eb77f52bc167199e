"""CISTERN_NUMA and CISTERN_HUGE_PAGES: where the kernel says that the memory is, and the lines where it cannot be.

Pages are reserved for the time of a test where that is permitted (as root); a node that this machine has not, and a
machine without any, are played by a libnuma of our own.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "host"))
import host_tests  # noqa: E402

ARGUMENTS = host_tests.ARGUMENTS
PAGES = pathlib.Path("/sys/kernel/mm/hugepages")
USUAL = "0 with a policy, 0 with huge pages, 0 of libnuma, of all\n"
PREFERRED, INTERLEAVED, LOCAL = 1, 3, 4  # linux/mempolicy.h
MAPPING = re.compile(r"(\w+) policy=(\S+) hg=(\d) page_kb=(\d+) huge_kb=(\d+)")


def reason_against_numa():
    try:
        if ctypes.CDLL("libnuma.so.1").numa_available() < 0:
            return "the system has no NUMA support"
    except OSError:
        return "libnuma is not installed"
    return "" if pathlib.Path("/proc/self/numa_maps").exists() else "no /proc/self/numa_maps"


class PlacementTest(host_tests.HostTest):
    def placed(self, *arguments, program="placement", **options):
        """What the program prints, and the lines of a process that has something to say."""
        settings = {name if name.isupper() else f"CISTERN_{name.upper()}": str(value)
                    for name, value in options.items()}
        done = self.shimmed(self.program(program), *arguments,
                            environment={"CISTERN_REPORT": str(self.folder / "report-%p"), **settings})
        self.assertEqual(done.status, 0, done.err)
        return done.out, done.err

    def mappings(self, *arguments, lines="", **options):
        out, err = self.placed(*arguments, **options)
        self.assertEqual(err, lines)
        found = [(name, policy, hg == "1", int(page), int(huge)) for name, policy, hg, page, huge in
                 MAPPING.findall(out)]
        self.assertGreater(len(found), 0, out)
        return found

    def holds_a_model(self, **options):
        """Contents under random calls of two threads."""
        plain = self.plain(self.program("model"), 2, 100000, 5)
        self.assertEqual(plain.status, 0)
        self.assertEqual(self.placed(2, 100000, 5, program="model", **options)[0], plain.out)


class Unchanged(PlacementTest):
    def test_without_the_options(self):
        self.assertEqual(self.plain(self.program("placement"), "all").out, USUAL)
        self.assertEqual(self.placed("all"), (USUAL, ""))
        self.assertEqual(self.placed("all", numa="off", huge_pages="OFF"), (USUAL, ""))

    def test_where_the_pool_does_not_serve(self):
        self.assertEqual(self.placed("all", numa="local", huge_pages="thp", host_pool="off"), (USUAL, ""))

    def test_bad_values_leave_one_line_each(self):
        for value in ("near", "node:", "node:x", "node:-1", "node:0x1", "node:1 ", "node", "local,interleave", "0",
                      "node:4294967296"):
            line = f"cistern: CISTERN_NUMA: '{value}' is not local, interleave, node:N or off; using off\n"
            self.assertEqual(self.placed("all", numa=value), (USUAL, line))
        line = f"cistern: CISTERN_NUMA: '{'x' * 80}...' is not local, interleave, node:N or off; using off\n"
        self.assertEqual(self.placed("all", numa="x" * 5000), (USUAL, line))
        for value in ("4k", "2mib", "always", "on"):
            line = f"cistern: CISTERN_HUGE_PAGES: '{value}' is not thp, copied, 2m, 1g or off; using off\n"
            self.assertEqual(self.placed("all", huge_pages=value), (USUAL, line))

    def test_bad_values_where_nothing_else_is_said(self):
        done = self.shimmed("/bin/true", environment={"CISTERN_NUMA": "bad", "CISTERN_HUGE_PAGES": "bad"})
        self.assertEqual((done.out, done.err.count("cistern: "), done.status), ("", 2, 0))


class Numa(PlacementTest):
    def setUp(self):
        super().setUp()
        if reason_against_numa():
            self.skipTest(reason_against_numa())
        allowed = re.search(r"Mems_allowed_list:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())
        self.node = allowed[1]

    def test_policies(self):
        for value, policy in (("local", "local"), ("interleave", r"interleave[:=].*"),
                              (f"node:{self.node}", f"prefer:{self.node}"), ("LOCAL", "local")):
            with self.subTest(value):
                # Among them one of the first chunk, which may be older than the policy.
                for _, found, *usual in self.mappings(1, 8, 64, 300, numa=value):
                    self.assertRegex(found, f"^{policy}$")
                    self.assertEqual(usual, [False, 4, 0])

    def test_moved_pages_and_what_they_leave_behind(self):
        out, _ = self.placed("move", 8, numa=f"node:{self.node}")
        self.assertTrue(out.startswith("moved\n"), out)
        self.assertEqual([policy for _, policy, *_ in MAPPING.findall(out)], [f"prefer:{self.node}"] * 2)

    def test_a_node_that_is_not_there(self):
        for node in ("1023", "1024", "4294967295"):
            out, err = self.placed("all", numa=f"node:{node}")
            self.assertTrue(out.startswith("0 with a policy, 0 with huge pages, "), out)
            self.assertEqual(err, f"cistern: CISTERN_NUMA: node {node} is not available to this process; "
                                  "the system chooses where memory lies\n")

    def test_children_and_contents(self):
        self.assertEqual(self.placed("trim", 21, numa="interleave"), ("given back\n", ""))
        self.assertEqual(self.placed("fork", 64, numa="interleave"), ("child 0, parent's unchanged\n", ""))
        self.holds_a_model(numa="interleave")


class OtherMachines(PlacementTest):
    """With a libnuma of our own: what is asked of the kernel."""

    def calls(self, machine, value, lines=""):
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        _, err = self.placed(1, 64, numa=value, PLACEMENT_MACHINE=machine, PLACEMENT_CALLS=calls,
                               LD_LIBRARY_PATH=self.program("libnuma"))
        self.assertEqual(err, lines)
        found = re.findall(r"(\S+) (\d+) mode (\d+) nodes (\w+) more 0 flags 0\n",
                           calls.read_text() if calls.exists() else "")
        for memory, length, *_ in found:
            self.assertEqual(int(memory, 16) % 4096, 0)
            self.assertEqual(int(length) % 4096, 0)
        return [(int(length), int(mode), int(nodes, 16)) for _, length, mode, nodes in found]

    def test_each_chunk_is_asked_for_once(self):
        for value, mode, nodes in (("node:0", PREFERRED, 1), ("node:1", PREFERRED, 2), ("interleave", INTERLEAVED, 3),
                                   ("local", LOCAL, 0)):
            with self.subTest(value):
                calls = self.calls("two", value)
                self.assertEqual({call[1:] for call in calls}, {(mode, nodes)})
                self.assertGreater(len(calls), 1)
                self.assertGreaterEqual(sum(length for length, *_ in calls), 65 << 20)

    def test_refusal_leaves_one_line(self):
        calls = self.calls("refusing", "local", lines="cistern: CISTERN_NUMA: mbind: Operation not permitted; "
                                                      "the system chooses where memory lies\n")
        self.assertGreater(len(calls), 1)

    def test_no_numa(self):
        calls = self.calls("none", "local", lines="cistern: CISTERN_NUMA: the system has no NUMA support; "
                                                  "the system chooses where memory lies\n")
        self.assertEqual(calls, [])

    def test_no_libnuma(self):
        (self.folder / "libnuma.so.1").write_bytes(b"")
        self.assertEqual(self.placed("all", numa="local", LD_LIBRARY_PATH=self.folder),
                         (USUAL, "cistern: CISTERN_NUMA: libnuma.so.1 cannot be loaded; "
                                 "the system chooses where memory lies\n"))


class Transparent(PlacementTest):
    def setUp(self):
        super().setUp()
        enabled = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
        if not enabled.exists():
            self.skipTest("this kernel has no transparent huge pages")
        self.served = "[never]" not in enabled.read_text()

    def test_chunks_are_advised(self):
        found = self.mappings(1, 8, 64, huge_pages="thp")
        self.assertEqual({mapping[1:4] for mapping in found}, {("default", True, 4)})
        if self.served:
            self.assertGreater(found[-1][4], 0)

    def test_moved_pages_and_what_they_leave_behind(self):
        out, _ = self.placed("move", 8, huge_pages="thp")
        self.assertTrue(out.startswith("moved\n"), out)
        self.assertEqual([advised for _, _, advised, *_ in MAPPING.findall(out)], ["1", "1"])

    def test_children_and_contents(self):
        self.assertEqual(self.placed("trim", 21, huge_pages="thp"), ("given back\n", ""))
        self.assertEqual(self.placed("fork", 64, huge_pages="thp"), ("child 0, parent's unchanged\n", ""))
        self.holds_a_model(huge_pages="thp")


class Reserved(PlacementTest):
    def none_free(self, size):
        return f"cistern: CISTERN_HUGE_PAGES: no free page of {size} (Cannot allocate memory); normal pages are used\n"

    @contextlib.contextmanager
    def reserved(self, page_kb, count):
        """So many free pages, or the test is skipped; as before afterwards."""
        folder = PAGES / f"hugepages-{page_kb}kB"
        number = folder / "nr_hugepages"
        if not os.access(number, os.W_OK):
            self.skipTest(f"{number} can't be written")
        before = number.read_text()
        try:
            number.write_text(str(count))
            if int((folder / "free_hugepages").read_text()) != count:
                self.skipTest(f"{count} free pages of {page_kb} KiB can't be had")
            yield folder
        finally:
            number.write_text(before)

    def test_none_is_free(self):
        for value, page_kb, size in (("2m", 2048, "2 MiB"), ("1g", 1 << 20, "1 GiB")):
            free = PAGES / f"hugepages-{page_kb}kB" / "free_hugepages"
            if not free.exists() or int(free.read_text()) > 0:
                continue
            with self.subTest(value):
                self.assertEqual(self.placed("all", huge_pages=value), (USUAL, self.none_free(size)))

    def test_2m(self):
        with self.reserved(2048, 64) as folder:
            found = self.mappings(16, 8, 64, huge_pages="2m")
            self.assertEqual({mapping[2:4] for mapping in found}, {(False, 2048)})
            out, err = self.placed("move", 8, huge_pages="2m")
            self.assertEqual((out.splitlines()[0], err), ("moved", ""))
            self.assertEqual(self.placed("trim", 21, huge_pages="2m"), ("kept\n", ""))
            self.assertEqual(self.placed("fork", 16, huge_pages="2m"), ("child 0, parent's unchanged\n", ""))
            self.holds_a_model(huge_pages="2m")
            self.assertEqual((folder / "free_hugepages").read_text(), "64\n", "given back at the end")

    def test_when_they_run_out_normal_pages_follow(self):
        with self.reserved(2048, 12):
            found = self.mappings(15, 64, 200, huge_pages="2m", lines=self.none_free("2 MiB"))
            self.assertEqual([page_kb for *_, page_kb, _ in found], [2048, 4, 4])
            self.holds_a_model(huge_pages="2m")

    def test_on_nodes(self):
        if reason_against_numa():
            self.skipTest(reason_against_numa())
        with self.reserved(2048, 12):
            # What follows is the pool's still: it has the policy.
            found = self.mappings(15, 64, huge_pages="2m", numa="local", lines=self.none_free("2 MiB"))
            self.assertEqual([(policy, page_kb) for _, policy, _, page_kb, _ in found], [("local", 2048), ("local", 4)])

    def test_1g(self):
        with self.reserved(1 << 20, 1):
            found = self.mappings(16, 300, huge_pages="1g")
            self.assertEqual({page_kb for *_, page_kb, _ in found}, {1 << 20})


if __name__ == "__main__":
    host_tests.main()
