"""The rows of `leaks` in a JSON report: of GPU kinds, and of host memory, of which every program has some."""


def gpu_rows(report):
    return [row for row in report["leaks"] if row["kind"] != "host"]


def host_rows(report):
    return [row for row in report["leaks"] if row["kind"] == "host"]
