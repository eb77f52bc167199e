"""The text of a GPU check: a pure function of its results."""


def heading(text):
    return ["", text, "-" * len(text)]


def table(rows, indent="  "):
    """Columns as wide as their widest cell; the last one is not padded."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return [indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def machine(results):
    said = results["machine"]
    where = "the SIMULATED driver" if said.get("simulator") else "; ".join(said.get("gpus") or []) or "no nvidia-smi"
    yield f"Cistern GPU check, {results['date']}, on {where}"
    what = {"device": "device", "driver": "driver API", "glibc": "glibc", "kernel": "Linux", "python": "Python"}
    yield "  " + ", ".join(f"{title} {said.get(key, '?')}" for key, title in what.items())
    if not results["complete"]:
        yield "  NOT COMPLETE: what follows is what was known when it ended"
    yield from (f"  problem: {problem}" for problem in results["problems"])


def probe(results):
    rules = results["probe"]
    if not rules:
        return
    agree = [rule for rule in rules if rule["agrees"]]
    disagree = [rule for rule in rules if rule["agrees"] is False]
    silent = [rule for rule in rules if rule["measured"] is None]
    measured = [rule for rule in rules if rule["agrees"] is None and rule["measured"] is not None]
    yield from heading(f"Rules: {len(agree)} as assumed, {len(disagree)} otherwise, {len(measured)} only measured, "
                       f"{len(silent)} without an answer")
    if disagree:
        yield from table([["RULE", "ASSUMED", "MEASURED"],
                          *([rule["rule"] + variant(rule), rule["assumed"], rule["measured"]] for rule in disagree)])
    if measured:
        yield "  measured:"
        yield from table([[rule["rule"] + variant(rule), rule["measured"]] for rule in measured], "    ")
    if silent:
        yield "  without an answer:"
        yield from table([[rule["rule"] + variant(rule), rule.get("reason", "")] for rule in silent], "    ")
    compared = [rule for rule in rules if "preloaded" in rule]
    if compared:
        differing = [rule for rule in compared if not rule["preloaded_same"]]
        same = len(compared) - len(differing)
        yield from heading(f"Under Cistern: {same} rules answered as plain, {len(differing)} not")
        if differing:
            yield from table([["RULE", "PLAIN", "PRELOADED"],
                              *([rule["rule"], rule["measured"], rule["preloaded"]] for rule in differing)])


def variant(rule):
    """The runtime's rules are measured twice; the name says which one."""
    return {"probe_runtime_static": " (static)", "probe_runtime_shared": " (shared)"}.get(rule["probe"], "")


def outcomes(results):
    for name, title in (("tests", "CUDA test programs, plain against preloaded"),
                        ("frameworks", "Frameworks, plain against preloaded")):
        entries = results[name]
        if not entries:
            continue
        counts = {}
        for entry in entries:
            counts[entry["result"]] = counts.get(entry["result"], 0) + 1
        yield from heading(f"{title}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
        for entry in entries:
            if entry["result"] in ("passed", "skipped") and name == "tests":
                continue
            yield f"  {entry['name']} ({entry['way']}): {entry['result']} {entry.get('seconds', '')}".rstrip()
            if entry["result"] != "passed":
                yield from (f"    {line}" for line in entry.get("says", "").splitlines()[-12:])


def size(count):
    if not count:
        return ""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def costs(results):
    entries = results["costs"]
    if not entries:
        return
    ways = list(dict.fromkeys(entry["way"] for entry in entries))
    rows = {}
    for entry in entries:
        rows.setdefault((entry["cost"], entry["bytes"]), {})[entry["way"]] = entry
    yield from heading("Costs in nanoseconds: least / median")
    cells = [["CALL", "SIZE", *(way.upper() for way in ways)]]
    for (call, count), row in rows.items():
        cells.append([call, size(count), *(f"{row[way]['min_ns']:,} / {row[way]['median_ns']:,}" if way in row else "-"
                                           for way in ways)])
    yield from table(cells)


def copies(results):
    entries = results["copies"]
    if not entries:
        return
    rows, columns = {}, []
    for entry in entries:
        column = entry["memory"] if entry["way"] == "plain" else entry["way"]
        if column not in columns:
            columns.append(column)
        rows.setdefault((entry["direction"], entry["streams"], entry["bytes"]), {})[column] = entry["rate"]
    yield from heading("Copies between host memory and the device: 10^9 bytes a second")
    cells = [["DIRECTION", "STREAMS", "SIZE", *(column.upper() for column in columns)]]
    for (direction, streams, count), row in sorted(rows.items()):
        cells.append([direction, streams, size(count),
                      *(f"{row[column] / 1e9:.2f}" if column in row else "-" for column in columns)])
    yield from table(cells)


def traces(results):
    entries = results["traces"]
    if not entries:
        return
    ways = list(dict.fromkeys(entry["way"] for entry in entries))
    rows = {}
    for entry in entries:
        rows.setdefault(entry["trace"], {})[entry["way"]] = entry
    yield from heading("Lifetimes of device memory: microseconds for an allocation, a memset of it and its free")
    cells = [["TRACE", "ALLOCATIONS", *(way.upper() for way in ways)]]
    for trace, row in rows.items():
        cells.append([trace, next(iter(row.values()))["allocations"],
                      *(f"{row[way]['ns'] / row[way]['allocations'] / 1000:.2f}" if way in row else "-"
                        for way in ways)])
    yield from table(cells)


def files(results):
    entries = results["files"]
    if not entries:
        return
    ways = list(dict.fromkeys(entry["way"] for entry in entries))
    rows = {}
    for entry in entries:
        rows.setdefault((entry["loader"], entry["load"]), {})[entry["way"]] = entry["rate"]
    yield from heading("Weights from mapped files to the device: 10^9 bytes a second")
    cells = [["LOADER", "LOAD", *(way.upper() for way in ways)]]
    for (loader, load), row in rows.items():
        cells.append([loader, load, *(f"{row[way] / 1e9:.2f}" if way in row else "-" for way in ways)])
    yield from table(cells)


def parts(results):
    if results["parts"]:
        yield from heading("Time")
        yield from table([[part["part"], f"{part['seconds']} s", "CUT OFF" if part["cut_off"] else ""]
                          for part in results["parts"]])


def text(results):
    lines = [*machine(results), *probe(results), *outcomes(results), *costs(results), *traces(results),
             *copies(results), *files(results), *parts(results)]
    return "\n".join(lines) + "\n"
