"""Libraries that programs open: their order of symbols and their search paths stay, and their malloc is the program's,
however they find it."""
import shutil

import host_tests
from host_tests import ARGUMENTS, HostTest

PYTHON = "/usr/bin/python3"


class Plugins(HostTest):
    def opener(self, what, plugin="libplugin.so", **more):
        done = self.same(self.program("opener"), what, self.program(plugin), **more)
        self.assertEqual((done.err, done.status), ("", 3), done.out)
        self.assertIn(f"opener: {what} holds\n", done.out)
        return done.out

    def test_a_plugin_with_an_order_of_its_own(self):
        self.assertIn("the plugin finds the plugin's\n", self.opener("deep"))

    def test_a_plugin_in_the_programs_order(self):
        self.assertIn("the plugin finds the program's\n", self.opener("shallow"))

    def test_it_holds_where_the_c_library_serves(self):
        self.opener("deep", environment={"CISTERN_HOST_POOL": "off"})
        self.opener("c_library", environment={"CISTERN_HOST_POOL": "off"})

    def test_without_the_flag_its_order_is_the_programs(self):
        done = self.shimmed(self.program("opener"), "deep", self.program("libplugin.so"),
                            environment={"CISTERN_DEEPBIND": "clear"})
        self.assertEqual(done.all(), ("the plugin finds the program's\nopener: deep holds\n", "", 3))

    def test_where_the_names_cannot_be_changed_the_flag_is_taken_off(self):
        done = self.plain(self.program("opener"), "deep", self.program("libplugin.so"),
                          preload=[ARGUMENTS.shim, self.program("librefusing.so")])
        self.assertEqual(done.all(), ("the plugin finds the program's\nopener: deep holds\n", "", 3))

    def test_kept_as_it_is_a_block_of_ours_is_foreign_there(self):
        done = self.shimmed(self.program("opener"), "deep", self.program("libplugin.so"),
                            environment={"CISTERN_DEEPBIND": "keep"})
        self.assertNotEqual(done.status, 3)

    def test_the_callers_search_path_counts(self):
        self.opener("search_path")

    def test_reasons_are_the_plain_ones(self):
        printed = self.opener("errors")
        self.assertIn("libnowhere.so: null, libnowhere.so: cannot open shared object file", printed)
        self.assertIn("libprivate.so: null, libprivate.so: cannot open", printed)

    def test_a_namespace_of_its_own(self):
        self.opener("apart")

    def test_look_ups_in_the_c_library(self):
        self.opener("c_library")

    def test_threads_open_at_once(self):
        for _ in range(5):
            self.opener("threads")

    def test_another_allocator_is_left_alone(self):
        own = self.program("libown_allocator.so")
        for order in ([own, ARGUMENTS.shim], [ARGUMENTS.shim, own]):
            for what in ("shallow", "errors", "search_path"):
                plain = self.plain(self.program("opener"), what, self.program("libplugin.so"), preload=[own])
                self.assertEqual(plain.all(), self.plain(self.program("opener"), what, self.program("libplugin.so"),
                                                         preload=order).all())


class PluginHosts(HostTest):
    """Programs of the distribution that look malloc up in an order of their own."""

    def test_php(self):
        if not shutil.which("php"):
            self.skipTest("php is not installed")
        script = ('echo implode(" ", array_filter(["json", "mbstring", "xml"], "extension_loaded")), "\n";'
                  '$a = json_decode(json_encode(array_map("strrev", range(1, 20000))));'
                  'echo count($a), md5(serialize($a)), "\n";'
                  'if (function_exists("mb_strtoupper")) echo mb_strtoupper(str_repeat("grün", 500)), "\n";'
                  'if (class_exists("DOMDocument")) { $d = new DOMDocument; $d->loadXML("<a><b>text</b></a>");'
                  ' echo $d->saveXML(); }'
                  'preg_match_all("/(\\\\d+)x/", str_repeat("12x ", 3000), $m); echo count($m[1]), "\n"; exit(5);')
        done = self.same("php", "-r", script)
        self.assertEqual(done.status, 5, done.err)
        self.assertIn("20000", done.out)
        self.assertEqual(self.same("php", "-m").status, 0)

    def test_ctypes_frees_what_a_library_gave(self):
        done = self.same(PYTHON, "-c", (
            "import ctypes\n"
            "libc = ctypes.CDLL('libc.so.6')\n"
            "libc.strdup.restype = libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p\n"
            "libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n"
            "libc.free.argtypes = [ctypes.c_void_p]\n"
            "for n in (1, 100, 5000, 300000):\n"
            "  libc.free(libc.strdup(b'x' * n))\n"
            "  libc.free(libc.realloc(libc.strdup(b'x' * n), 2 * n))\n"
            "  libc.free(libc.malloc(n))\n"
            "print('freed')\n"))
        self.assertEqual(done.all(), ("freed\n", "", 0))

    def test_python_opens_deep(self):
        script = ("import sys, os\n"
                  "sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)\n"
                  "import json, decimal, sqlite3, ssl, ctypes, bz2, lzma, zlib\n"
                  "c = sqlite3.connect(':memory:'); c.execute('create table t(x)')\n"
                  "c.executemany('insert into t values(?)', ((str(i) * 20,) for i in range(2000)))\n"
                  "print(c.execute('select count(*), max(x) from t').fetchone())\n"
                  "print(len(lzma.decompress(lzma.compress(bytes(100000)))), decimal.Decimal(2).sqrt())\n")
        self.assertEqual(self.same(PYTHON, "-c", script).status, 0)


if __name__ == "__main__":
    host_tests.main()
