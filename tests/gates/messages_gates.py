"""The catalogue of messages (shim/doc/messages.md) has the texts of the source and no others; a difference is seen."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def load(script):
    loader = importlib.machinery.SourceFileLoader(script, str(ROOT / "scripts" / script))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(script, loader))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = written
    return module


messages = load("messages")


class Messages(unittest.TestCase):
    CODE = ('#include "shim/x y.hpp"\n'
            'static_assert(true, "not a text of ours");\n'
            'asm volatile("mov a, b\\n" : "=r"(x));\n'
            '// "nor is this"\n'
            'line.print("cannot read {}"\n'
            '           ": {} bytes are missing", path, bytes);\n'
            'const char* const kName = "one";\n')
    PYTHON = 'raise ValueError(f"no such kind: {kind}")\nprint("told to nobody else")\nwords = "this is no message"\n'
    NAMES = 'WAITED(queues, "queues")\n'
    PAGE = ("| message | cause | cure |\n|---|---|---|\n| `cannot read <path>: <count> bytes are missing` | a | b |\n"
            "| `no such kind: <kind>`, `told to nobody else` | a | b |\n| `queues` | a | b |\n")

    def complaints(self, more_code="", page=PAGE):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (("shim/a.cpp", self.CODE + more_code), ("shim/python/b.py", self.PYTHON),
                               ("stats/waited.def", self.NAMES), ("shim/a_test.cpp", 'f("of a test");'),
                               (messages.PAGE, page)):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(messages.complaints(root))

    def test_the_catalogue_has_each_text_and_no_other(self):
        self.assertEqual(list(messages.complaints(ROOT)), [])

    def test_a_page_that_has_all(self):
        self.assertEqual(self.complaints(), [])

    def test_a_text_without_an_entry(self):
        self.assertEqual(self.complaints('warn_line("a planted line");\n'),
                         [f'shim/a.cpp:8: "a planted line" has no entry in {messages.PAGE}'])

    def test_a_name_of_one_word_without_an_entry(self):
        self.assertEqual(self.complaints(page=self.PAGE.replace("| `queues` |", "| `in several queues` |")),
                         [f'stats/waited.def:1: "queues" has no entry in {messages.PAGE}',
                          f'{messages.PAGE}: nothing prints "in several queues" of `in several queues`'])

    def test_an_entry_without_a_text(self):
        self.assertEqual(self.complaints(page=self.PAGE + "| `cannot write <path>` | a | b |\n"),
                         [f'{messages.PAGE}: nothing prints "cannot write" of `cannot write <path>`'])

    def test_an_entry_whose_text_was_changed(self):
        self.assertEqual(len(self.complaints(page=self.PAGE.replace("are missing", "are absent"))), 2)


unittest.main(argv=["messages_gates.py", *sys.argv[1:]], verbosity=2)
