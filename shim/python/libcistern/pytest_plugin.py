"""pytest --cistern: a test that leaks GPU memory fails, and the line that allocated it is named.

    python -m libcistern run -- python -m pytest --cistern

Looked at are blocks that were allocated while the test itself ran and are alive when its fixtures are gone: what
fixtures allocate is theirs. Memory that a framework keeps for reuse is given back first. A test marked
`cistern_may_leak` is left alone. Other threads' blocks count as the test's.
"""
import pytest
from _pytest.runner import runtestprotocol

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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        """As pytest's own, but that reports wait until the test's fixtures are gone."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self.judge(item, reports)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def judge(self, item, reports):
        born = item.__dict__.pop(KEY, None)
        call = next((report for report in reports if report.when == "call"), None)
        if not born or call is None or call.outcome != "passed" or item.get_closest_marker(MARK):
            return
        _leaks.empty_caches()
        leaks = _leaks.leaks_since(frozenset(), _leaks.GPU_KINDS, among=born)
        if leaks:
            call.outcome = "failed"
            call.longrepr = describe(leaks, str(item.path if hasattr(item, "path") else item.fspath))


def describe(leaks, file):
    """The first line is what a summary shows."""
    lines = []
    for leak in leaks:
        where = leak.where(file)
        blocks = "1 block" if leak.blocks == 1 else f"{leak.blocks} blocks"
        place = f"{where.file}:{where.line}" if where else "an unknown line"
        lines.append(f"{place}: leaked {leak.bytes} bytes of {leak.kind} memory in {blocks} ({leak.call})")
        lines.extend(f"    {line}" for line in leak.stack)
    return "\n".join(lines)
