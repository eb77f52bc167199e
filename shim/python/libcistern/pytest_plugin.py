"""pytest --cistern: a test that leaks GPU memory fails, and the line that allocated it is named.

    python -m libcistern run -- python -m pytest --cistern

Looked at are blocks that were allocated while the test itself ran and are alive when its fixtures are gone: what
fixtures allocate is theirs. So the failure is one of the test's teardown: an error in pytest's words. Memory that a
framework keeps for reuse is given back first. A test marked `cistern_may_leak` is left alone. Other threads' blocks
count as the test's.

Only wrappers around hooks: who runs the test, and how often, is other plug-ins' matter.
"""
import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

from libcistern import _leaks, _library

KEY = "_cistern_born_in_call"
MARK = "cistern_may_leak"


def pytest_addoption(parser):
    parser.getgroup("cistern").addoption(
        "--cistern", action="store_true",
        help="fail tests that leak GPU memory (to be run under Cistern: python -m libcistern run -- python -m pytest)")


def pytest_configure(config):
    config.addinivalue_line("markers", f"{MARK}: --cistern does not look at what this test leaks")
    if not config.getoption("--cistern"):
        return
    try:
        _library.need_preloaded("--cistern")
        _library.library()
    except _library.CisternError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(Watch(), "cistern-watch")


class Watch:
    """What of a test's memory outlives it."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        _leaks.empty_caches()
        before = _leaks.seen(_leaks.GPU_KINDS)
        yield
        _leaks.empty_caches()
        setattr(item, KEY, _leaks.seen(_leaks.GPU_KINDS) - before)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Outermost: a test that xfail turns into a failure is one."""
        outcome = yield
        report = outcome.get_result()
        if call.when == "call" and report.outcome != "passed":
            item.__dict__.pop(KEY, None)
        elif call.when == "teardown":
            self.judge(item, report)

    def judge(self, item, report):
        born = item.__dict__.pop(KEY, None)
        if not born or report.outcome != "passed" or item.get_closest_marker(MARK):
            return
        _leaks.empty_caches()
        leaks = _leaks.leaks_since(frozenset(), _leaks.GPU_KINDS, among=born)
        if leaks:
            report.outcome = "failed"
            report.longrepr = Leaked(leaks, str(item.path if hasattr(item, "path") else item.fspath))


class Leaked(TerminalRepr):
    """What pytest shows; its summary has the first line."""

    def __init__(self, leaks, file):
        self.text = describe(leaks, file)
        where = leaks[0].where(file)
        place = (where.file, where.line) if where else (file, 0)
        self.reprcrash = ReprFileLocation(*place, self.text.splitlines()[0])

    def toterminal(self, tw):
        tw.line(self.text)


def describe(leaks, file):
    lines = []
    for leak in leaks:
        where = leak.where(file)
        blocks = "1 block" if leak.blocks == 1 else f"{leak.blocks} blocks"
        place = f"{where.file}:{where.line}" if where else "an unknown line"
        lines.append(f"{place}: leaked {leak.bytes} bytes of {leak.kind} memory in {blocks} ({leak.call})")
        lines.extend(f"    {line}" for line in leak.stack)
    return "\n".join(lines)
