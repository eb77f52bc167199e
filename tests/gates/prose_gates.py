#!/usr/bin/python3
"""Promises of the prose in the tree: plain English in pages, option texts, `--help` and comments.

A sentence is wrong by one of four rules:

   opening   it begins with Who, What, Whose, Which, Whoever or Whatever as its subject, or is an "Of ..." fragment
   length    it has more than 35 words
   banned    it has a word of BANNED
   glossary  it has a word that shim/doc/glossary.md replaces by a term ("Not: ...")

Text in backticks and in fenced blocks quotes code or printed lines, and is not read.

tests/gates/prose_baseline.txt has the number of such sentences left in each folder. A number there may only fall:
`prose_gates.py --lower` writes it after sentences were mended, and refuses to raise one; `--raise` does raise it, for a
merge of branches that were counted apart. `--list FOLDER` prints the sentences of a folder, `--count` all numbers.
"""
import ast
import collections
import importlib.machinery
import importlib.util
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import tokenize
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("pool", "stats", "backends", "shim", "tests", "bench", "scripts", "cmake")
C_LIKE = {".cpp", ".hpp", ".h", ".c", ".S", ".def", ".cl"}
HASH_LIKE = {".cmake", ".sh", ".toml"}
WORDS_MAX = 35
# Texts of options are in options.def, and what --help says is in one source: they are counted apart from comments.
OPTIONS, USAGE = "shim/options.def", "shim/entry_program.cpp"

# Pattern -> say instead.
BANNED = {
    r"that (?:is|are) none": "not a ...",
    r"is no (?:memory|rule|regular file)": "is not a ...",
    r"told of": "reported",
    r"for ever": "forever, or until when",
    r"at once": "immediately, or at the same time",
    r"(?:any|some|no|every)body(?:'s)?": "name the thread, the process or the program",
    r"(?:he|she|his|hers)": "name the program or the user",
    r"(?:thereby|therein|thereof|whereby|wherein|whereof|hereby|lest|anew|behold)": "plain words",
    r"content (?:by|with) (?:itself|its own)": "ended with 0",
    r"in the midst|into the midst": "interior",
    r"so long as": "while",
    r"of its own accord": "by itself",
    r"the like": "name them",
    r"takes? along": "releases with it",
    r"gives? (?:it|them)? ?again": "reuses",
    r"hears? (?:nothing )?of": "sees",
    r"goes past": "bypasses",
    r"is nothing to": "does not concern",
    r"by accident": "name the cause",
}
OPENING = re.compile(r"(?:who|what|whose|which|whoever|whatever)\b(?![^.]*\?)|of (?!course\b)", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_'’%/.,:+-]*")
TERM = re.compile(r"^- \*\*(.+?)\*\*(?: \(in code: .+?\))?: (.+?)(?: Not: (.+?)\.)?$", re.MULTILINE)


# --- The prose of each kind of file, as paragraphs
def comments_of_c(text):
    """Comments of C and C++; lines one under the other are a paragraph, an empty one ends it. A comment behind code is
    one of its own."""
    token = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
    paragraphs, last_line, last_column = [], -2, -1
    for match in token.finditer(text):
        comment = match[0]
        if not comment.startswith(("//", "/*")):
            continue
        line, column = text.count("\n", 0, match.start()), match.start() - text.rfind("\n", 0, match.start())
        if comment.startswith("/*"):
            inner = re.sub(r"(?m)^\s*\*+ ?", "", comment[2:-2])
            paragraphs += [list(part.split("\n")) for part in re.split(r"\n\s*\n", inner)]
            last_line = -2
            continue
        said = comment[2:]
        stands_alone = not text[match.start() - column + 1:match.start()].strip()
        if stands_alone and line == last_line + 1 and column == last_column and paragraphs and said.strip():
            paragraphs[-1].append(said)
        elif said.strip():
            paragraphs.append([said])
        last_line, last_column = (line, column) if said.strip() else (-2, -1)
    return [" ".join(part) for lines in paragraphs for part in diagrams_apart(lines)]


def diagrams_apart(lines):
    """Lines that are set off by three spaces, or have arrows, are drawings and rows: each stands for itself."""
    together = []
    for line in lines:
        drawn = re.match(r"\s{3,}", line) or "->" in line or "→" in line or re.match(r"\s*[-*] ", line)
        if drawn or not together:
            yield from ([together] if together else [])
            together = [] if drawn else [line]
            if drawn:
                yield [re.split(r"\s{2,}|->|→", line.strip())[-1]]
        else:
            together.append(line)
    if together:
        yield together


def comments_of_python(text):
    paragraphs = []
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return comments_behind_hash(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and (said := ast.get_docstring(node)):
            paragraphs += [" ".join(lines) for part in re.split(r"\n\s*\n", said)
                           for lines in diagrams_apart(part.split("\n"))]
    comments = [(t.start, t.string) for t in tokens if t.type == tokenize.COMMENT]
    return paragraphs + joined(comments)


def comments_behind_hash(text):
    comments = []
    for number, line in enumerate(text.split("\n")):
        match = re.search(r"(?:^|(?<=\s))#(?!!)[^{#\"']*(?:'\w[^{#\"']*)*$", line) or re.match(r"\s*(#(?!!).*)$", line)
        if match:
            comments.append(((number, line.index("#")), line[line.index("#"):]))
    return joined(comments)


def joined(comments):
    """Comments one under the other, at one column, are a paragraph."""
    paragraphs, last = [], (-2, -1)
    for (line, column), said in comments:
        said = said.lstrip("#! -")
        if not said:
            last = (-2, -1)
        elif (line, column) == (last[0] + 1, last[1]):
            paragraphs[-1] += " " + said
            last = (line, column)
        else:
            paragraphs.append(said)
            last = (line, column)
    return paragraphs


def paragraphs_of_page(text):
    """Paragraphs of Markdown: text, items of lists and cells of tables. Headings are no sentences."""
    text = re.sub(r"<!-- options: made from.*?<!-- end of options -->|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r'Not: "[^\n]*$', "", text, flags=re.MULTILINE)  # of the glossary
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
        if lines and lines[0].startswith("|"):
            found += [cell.strip() for line in lines if not re.match(r"^[|\s:-]+$", line)
                      for cell in re.split(r"(?<!\\)\|", line)[1:-1] if cell.strip()]
            continue
        item = ""
        for line in lines:
            if re.match(r"\s*(?:[-*]|\d+\.) ", line):
                found.append(item)
                line = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line)
                item = ""
            item += " " + line.strip()
        found.append(item)
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part).replace("**", "").replace("*", "").strip()
            for part in found if part.strip()]


def paragraphs_of_manual(text):
    """Paragraphs of mdoc: text between requests; names of options and files count as one word."""
    text = re.sub(r'\.\\" options: made from.*?\.\\" end of options', "", text, flags=re.DOTALL)
    found, current = [], ""
    for line in text.split("\n"):
        if line.startswith('.\\"'):
            continue
        request = re.match(r"\.(\w+) ?(.*)", line)
        if not request:
            current += " " + line
        elif request[1] in ("Ev", "Fn", "Nm", "Fl", "Ql", "Dq", "Pq", "Ar"):
            current += " X" + ("." if re.search(r" \.$", line) else "")
        else:
            found.append(current)
            current = ""
    return [part.strip() for part in [*found, current] if part.strip()]


def option_texts(text):
    """The help of each option, the last column of its row: its entries are divided by semicolons."""
    literal = r'"(?:[^"\\]|\\.)*"'
    rows = re.findall(rf"^OPTION\(\w+, \w+, \w+, {literal}, {literal},\s*((?:{literal}\s*)+)\)", text, re.MULTILINE)
    if len(rows) != len(re.findall(r"^OPTION\(", text, re.MULTILINE)):
        raise ValueError(f"{OPTIONS}: rows have another form than the gate reads")
    helps = ["".join(part[1:-1] for part in re.findall(literal, row)) for row in rows]
    return [entry.strip() for said in helps for entry in said.split(";")]


def usage_texts(text):
    """String literals with words, of the source that prints --help."""
    found = re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', re.sub(r"//[^\n]*|#include[^\n]*", "", text))
    texts = ["".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', part)) for part in found]
    return [line for said in texts for line in re.split(r"\\n", said) if len(WORD.findall(line)) >= 4]


# --- The rules
def sentences(paragraph):
    quiet = re.sub(r"`[^`]*`", "X", " ".join(paragraph.split()))
    quiet = re.sub(r"\b(e\.g|i\.e|cf|vs)\.", r"\1", quiet)
    return [part.strip(" ()*_") for part in re.split(r"(?<=[.!?])[)\"]?\s+(?=[A-Z(\"`0-9-])|\)\s+\((?=[A-Z])", quiet)
            if part.strip(" ()*_")]


def glossary_of(root):
    """(term, meaning, [words that stand for nothing else])"""
    page = root / "shim/doc/glossary.md"
    rows = TERM.findall(page.read_text()) if page.exists() else []
    return [(term, meaning, re.findall(r'"([^"]+)"', instead)) for term, meaning, instead in rows]


def breaches(paragraph, instead):
    """(rule, what is wrong, the sentence) of each sentence that breaks a rule; the first rule that it breaks."""
    for sentence in sentences(paragraph):
        words = len(WORD.findall(sentence))
        if OPENING.match(sentence) and words > 3:
            yield "opening", sentence.split()[0], sentence
        elif words > WORDS_MAX:
            yield "length", f"{words} words", sentence
        elif found := next((match[0] for pattern in BANNED
                            if (match := re.search(rf"\b(?:{pattern})\b", sentence, re.IGNORECASE))), None):
            yield "banned", found, sentence
        elif found := next((word for word in instead if re.search(rf"\b{re.escape(word)}\b", sentence,
                                                                  re.IGNORECASE)), None):
            yield "glossary", f"{found} (say {instead[found]})", sentence


def prose_of(root):
    """(folder, file, paragraph) of everything that people read."""
    pages = [root / "README.md", *sorted((root / "shim/doc").rglob("*")), root / "shim/README.md",
             root / "tests/README.md", *sorted((root / ".github").rglob("*.md"))]
    for path in pages:
        name = path.relative_to(root)
        if path.suffix == ".md" and path.exists():
            yield from ((str(name.parent), name, part) for part in paragraphs_of_page(path.read_text()))
        elif path.suffix == ".1":
            yield from ((str(name.parent), name, part) for part in paragraphs_of_manual(path.read_text()))
    for name, texts in ((OPTIONS, option_texts), (USAGE, usage_texts)):
        if (root / name).exists():
            yield from ((f"texts of {name}", pathlib.Path(name), part) for part in texts((root / name).read_text()))
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            script = path.is_file() and not path.suffix and path.name not in ("LICENSE",)
            name = path.relative_to(root)
            if path.suffix in C_LIKE:
                read = comments_of_c
            elif path.suffix == ".py" or (script and path.read_bytes().startswith(b"#!/usr/bin/python")):
                read = comments_of_python
            elif path.suffix in HASH_LIKE or path.name == "CMakeLists.txt" or (script and folder == "scripts"):
                read = comments_behind_hash
            else:
                continue
            yield from ((str(name.parent), name, part) for part in read(path.read_text(errors="replace")))


def findings(root):
    """folder -> [(file, rule, what, sentence)]"""
    instead = {word: term for term, _, words in glossary_of(root) for word in words}
    found = collections.defaultdict(list)
    for folder, name, paragraph in prose_of(root):
        for rule, what, sentence in breaches(paragraph, instead):
            found[folder].append((name, rule, what, sentence))
    return found


BASELINE = "tests/gates/prose_baseline.txt"
SHOWN_MAX = 5  # a folder with more shows only those of changed files


def baseline_of(root):
    rows = re.findall(r"^ *(\d+) +(.+)$", (root / BASELINE).read_text(), re.MULTILINE)
    return {folder: int(count) for count, folder in rows}


def changed_files(root):
    """The files that differ from the last commit; none where there is no repository."""
    listed = [subprocess.run(["git", "-C", root, *command], capture_output=True, text=True)
              for command in (["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"])]
    return {line for done in listed if done.returncode == 0 for line in done.stdout.splitlines()}


def against_baseline(root):
    """The differences, one line each: new sentences, and numbers that have fallen and may not rise again."""
    found, allowed, changed = findings(root), baseline_of(root), changed_files(root)
    for folder in sorted({*found, *allowed}):
        count, limit = len(found.get(folder, ())), allowed.get(folder, 0)
        if count > limit:
            yield (f"{folder}: {count} sentences break a rule, {limit} did before; "
                   f"tests/gates/prose_gates.py --list '{folder}' prints them")
            yield from (f"  {name}: {rule}: {what}: {sentence}" for name, rule, what, sentence in found[folder]
                        if count <= SHOWN_MAX or str(name) in changed)
        elif count < limit:
            yield f"{folder}: {limit} sentences broke a rule, {count} do now: tests/gates/prose_gates.py --lower"


def write_baseline(root, may_rise):
    found = {folder: len(rows) for folder, rows in findings(root).items()}
    before = baseline_of(root) if (root / BASELINE).exists() else {}
    risen = [f"{folder}: {count}, {before.get(folder, 0)} before" for folder, count in sorted(found.items())
             if count > before.get(folder, 0)]
    if risen and not may_rise:
        return risen
    lines = [f"{count:5} {folder}\n" for folder, count in sorted(found.items())]
    (root / BASELINE).write_text("# Sentences in each folder that break a rule of prose_gates.py. May only fall.\n"
                                 + "".join(lines))
    return []


# --- Pages lead somewhere
NAMED_PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)}|\.ci|\.github)/[\w./-]+)(?: [^`]*)?`")


def broken_links(root):
    """Relative links to files, and to headings in them, that lead nowhere, and files of the tree that are named in
    backticks and are not there, as "page: link"."""
    pages = [path for path in (root / "README.md", root / "shim/README.md", root / "tests/README.md",
                               *(root / "shim/doc").rglob("*.md"), *(root / ".github").rglob("*.md")) if path.exists()]
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", link):
                continue
            name, _, heading = link.partition("#")
            target = (page.parent / name) if name else page
            if not target.exists() or (heading and heading not in anchors(target)):
                yield f"{page.relative_to(root)}: {link}"
        yield from (f"{page.relative_to(root)}: {named}" for named in NAMED_PATH.findall(text)
                    if not (root / named).exists())


def anchors(page):
    """As GitHub makes them from headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


class Prose(unittest.TestCase):
    def test_no_folder_has_more_than_before(self):
        differing = list(against_baseline(ROOT))
        self.assertTrue(not differing, "\n" + "\n".join(differing))

    def test_pages_and_options_have_none(self):
        self.assertEqual({folder: count for folder, count in baseline_of(ROOT).items()
                          if re.match(r"\.|shim/doc(/|$)|tests$|texts of ", folder)}, {})


class Links(unittest.TestCase):
    def test_each_leads_somewhere(self):
        self.assertEqual(list(broken_links(ROOT)), [])

    def test_one_that_does_not_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "shim/doc").mkdir(parents=True)
            (root / "README.md").write_text("# One two: three\n[a](#one-two-three) [b](shim/doc/x.md) [c](#four)\n"
                                            "[d](https://example.org/x.md)\n```\n[e](none.md)\n```\n"
                                            "`tests/gone.py --flag`, `shim/doc`, `shim/doc/x.md`, `tests`, `a/b`\n")
            (root / "shim/doc/x.md").write_text("[a](../../README.md#one-two-three) [b](y.md)\n")
            self.assertEqual(sorted(broken_links(root)),
                             ["README.md: #four", "README.md: tests/gone.py", "shim/doc/x.md: y.md"])


class Glossary(unittest.TestCase):
    """Terms are found, and stand once; a meaning is one or two sentences."""

    def test_the_page(self):
        terms = glossary_of(ROOT)
        names = [term.lower() for term, _, _ in terms]
        self.assertGreaterEqual(len(names), 60)
        lines = re.findall(r"^- \*\*", (ROOT / "shim/doc/glossary.md").read_text(), re.MULTILINE)
        self.assertEqual(len(lines), len(names), "an entry has another form than the gate reads")
        self.assertEqual(names, sorted(names))
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([term for term, meaning, _ in terms if len(sentences(meaning)) > 2], [])
        words = [word for _, _, instead in terms for word in instead]
        self.assertEqual([word for word in words if word.lower() in names], [])


class Changes(unittest.TestCase):
    """Notes of changes have a name and a text that scripts/changelog makes a page of."""

    @classmethod
    def setUpClass(cls):
        loader = importlib.machinery.SourceFileLoader("changelog", str(ROOT / "scripts/changelog"))
        cls.changelog = importlib.util.module_from_spec(importlib.util.spec_from_loader("changelog", loader))
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        loader.exec_module(cls.changelog)
        sys.dont_write_bytecode = written

    def with_notes(self, folder, **notes):
        root = pathlib.Path(folder)
        (root / "shim/doc/changes").mkdir(parents=True)
        (root / "shim/doc/changes/README.md").write_text("# Notes\n")
        for name, text in notes.items():
            (root / f"shim/doc/changes/{name.replace('_', '-')}.md").write_text(text)
        return root

    def test_every_note_can_be_assembled(self):
        notes = self.changelog.notes_of(ROOT / "shim/doc/changes")
        self.assertEqual(list(self.changelog.complaints(notes)), [])
        self.assertIn(self.changelog.MARK, (ROOT / "shim/doc/CHANGELOG.md").read_text())

    def test_a_wrong_note_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.with_notes(folder, added_a="Good.", better_b="No such kind.", fixed="No words.", fixed_c="",
                                   removed_d="No end", changed_e="Too long. " * 100)
            wrong = self.changelog.complaints(self.changelog.notes_of(root / "shim/doc/changes"))
            self.assertEqual([line.split(":")[0] for line in wrong],
                             ["better-b.md", "changed-e.md", "fixed-c.md", "fixed.md", "removed-d.md"])

    def test_a_release_moves_the_notes_into_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.with_notes(folder, fixed_b="Two\nlines.", added_a="New.", fixed_a="One.")
            page = root / "shim/doc/CHANGELOG.md"
            page.write_text(f"# Changes\n\n{self.changelog.MARK}\n## 0.1.0 (2026-01-01)\n\n- First.\n")
            self.assertIsNone(self.changelog.release(root, "0.2.0", "2026-02-01"))
            self.assertEqual(page.read_text(), f"# Changes\n\n{self.changelog.MARK}\n## 0.2.0 (2026-02-01)\n\n"
                             "### Added\n\n- New.\n\n### Fixed\n\n- One.\n- Two lines.\n\n"
                             "## 0.1.0 (2026-01-01)\n\n- First.\n")
            self.assertEqual([path.name for path in (root / "shim/doc/changes").iterdir()], ["README.md"])
            self.assertIn("no note", self.changelog.release(root, "0.3.0", "2026-03-01"))


class Rules(unittest.TestCase):
    """The gate itself, by planted sentences."""

    INSTEAD = {"call place": "call site"}
    PLAIN = ("The owner thread pushes the block. Another thread may pop it.",
             "What does it cost?",
             "Of course the driver answers first.",
             "A sentence may quote `what nobody said at once` in backticks.",
             " ".join(["word"] * 35) + ".",
             "Cistern forwards the call, e.g. Another one. It returns.",
             "What it costs",  # a heading, a label
             "History is another word.")
    WRONG = (("opening", "Who waits is not under way."),
             ("opening", "What a large block leaves stays resident."),
             ("opening", "Whose judge would complain of each word that it reads."),
             ("opening", "Which instance serves is settled at the first call."),
             ("opening", "Of host memory all blocks are judged."),
             ("opening", "A first sentence is fine. What follows it is not plain."),
             ("length", " ".join(["word"] * 36) + "."),
             ("banned", "The caller's pattern is his again."),
             ("banned", "A value that is none fails the process."),
             ("banned", "The block goes back at once."),
             ("banned", "Nobody waits here."),
             ("glossary", "The report names the call place."))

    def test_plain_sentences_pass(self):
        for sentence in self.PLAIN:
            with self.subTest(sentence):
                self.assertEqual(list(breaches(sentence, self.INSTEAD)), [])

    def test_each_rule_sees_its_sentence(self):
        for rule, sentence in self.WRONG:
            with self.subTest(sentence):
                self.assertEqual([found for found, _, _ in breaches(sentence, self.INSTEAD)], [rule])

    PLANTED = "What is wrong here stands in a comment."
    FILES = {  # one planted sentence each, and much beside it that is not prose
        "README.md": f"# What it costs in all\n{PLANTED}\n\n```\nWhat is quoted is not read here.\n```\n",
        "shim/doc/page.md": f"| a | b |\n|---|---|\n| `What is x of it` | {PLANTED} |\n",
        "shim/doc/list.md": f"- Plain words.\n- {PLANTED}\n",
        "shim/doc/made.md": "<!-- options: made from x -->\nWhat is made is not read.\n<!-- end of options -->\n"
                            f"{PLANTED}\n",
        "shim/doc/x.1": f".Sh NAME\n{PLANTED}\n.Ev CISTERN\n",
        ".github/GUIDE.md": f"{PLANTED}\n",
        "shim/options.def": 'OPTION(choice, a, CISTERN, "b", "what nobody reads", "plain words")\n'
                            f'OPTION(bytes, c, CISTERN, "1", "",\n       "plain words; "\n       "{PLANTED}")\n',
        "shim/entry_program.cpp": f'// Plain words.\nsay("usage: x\\n"\n    "{PLANTED}\\n");\n',
        "pool/a.cpp": f'// Plain words.\nint a;  // more of them\n// What is wrong here\n// stands in a comment.\n'
                      'const char* s = "// What is in a string is none of ours.";\n',
        "pool/b.h": f"/* {PLANTED} */\n",
        "stats/c.py": f'"""{PLANTED}"""\nx = "# What is in a string is not read."\n',
        "bench/d.py": f'"""Plain words."""\n# {PLANTED}\n',
        "tests/CMakeLists.txt": f"# {PLANTED}\n",
        "scripts/e": f"#!/bin/sh\n# {PLANTED}\n",
    }

    def planted(self, folder):
        root = pathlib.Path(folder)
        for name, text in self.FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "tests/gates").mkdir()
        return root

    def test_every_kind_of_file_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            found = findings(self.planted(folder))
        self.assertEqual(sorted(str(row[0]) for rows in found.values() for row in rows), sorted(self.FILES))
        self.assertEqual({(row[1], row[3]) for rows in found.values() for row in rows}, {("opening", self.PLANTED)})

    def test_comments_behind_code_are_no_paragraph(self):
        row = "int a;  // " + " ".join(["word"] * 20)
        self.assertEqual(len(comments_of_c(f"{row}\n{row}\n")), 2)
        continued = row + "\n" + " " * row.index("//") + "// " + " ".join(["word"] * 20)
        self.assertEqual(len(comments_of_c(continued)), 1)

    def test_words_of_the_glossary_are_seen_in_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "shim/doc").mkdir(parents=True)
            (root / "shim/doc/glossary.md").write_text(
                '- **call site** (in code: `Site`): The stack of an allocation. Not: "call place", "spot".\n')
            (root / "pool").mkdir()
            (root / "pool/a.hpp").write_text("// The call place of a block.\n")
            self.assertEqual(findings(root)["pool"][0][1:3], ("glossary", "call place (say call site)"))

    def test_a_number_may_only_fall(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.planted(folder)
            self.assertNotEqual(write_baseline(root, may_rise=False), [])  # nothing was allowed before
            self.assertEqual(write_baseline(root, may_rise=True), [])
            self.assertEqual(list(against_baseline(root)), [])
            (root / "pool/new.cpp").write_text("// What is new is counted.\n")
            self.assertIn("pool: 3 sentences break a rule, 2 did before", next(against_baseline(root)))
            self.assertIn("pool/new.cpp: opening: What: What is new", "\n".join(against_baseline(root)))
            self.assertEqual(write_baseline(root, may_rise=False), ["pool: 3, 2 before"])
            for name in ("new.cpp", "a.cpp", "b.h"):
                (root / "pool" / name).write_text("// Plain words.\n")
            self.assertIn("pool: 2 sentences broke a rule, 0 do now", next(against_baseline(root)))
            self.assertEqual(write_baseline(root, may_rise=False), [])
            self.assertEqual(list(against_baseline(root)), [])


def main(arguments):
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if arguments[:1] == ["--count"]:
        found = findings(ROOT)
        for folder, rows in sorted(found.items()):
            rules = collections.Counter(rule for _, rule, _, _ in rows)
            print(f"{len(rows):5} {folder}  ({', '.join(f'{rule} {n}' for rule, n in sorted(rules.items()))})")
        print(f"{sum(map(len, found.values())):5} in all")
        return 0
    if arguments[:1] == ["--list"]:
        for name, rule, what, sentence in findings(ROOT).get(arguments[1] if len(arguments) > 1 else ".", []):
            print(f"{name}: {rule}: {what}: {sentence}")
        return 0
    if arguments[:1] in (["--lower"], ["--raise"]):
        risen = write_baseline(ROOT, may_rise=arguments[0] == "--raise")
        print("\n".join(risen) if risen else f"wrote {BASELINE}")
        return 1 if risen else 0
    unittest.main(argv=[sys.argv[0], *arguments], verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
