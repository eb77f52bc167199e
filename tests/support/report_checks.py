"""What must be true of every JSON report whatever wrote it: the schema, and sums that must agree. The programs that
write reports know nothing of this: each rule is worked out here from the figures of one report alone."""
import json
import math
import pathlib

import jsonschema

from report_rows import gpu_rows, host_rows

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "stats" / "report" / "report.schema.json"


def closed(schema):
    """The same, but with no fields beside those it names: readers let unknown ones pass, tests do not."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(part) for key, part in schema.items()}
    if parts.get("type") == "object" and "additionalProperties" not in parts:
        parts["additionalProperties"] = False
    return parts


def schema_validator():
    schema = closed(json.loads(SCHEMA.read_text()))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


VALIDATOR = schema_validator()
# Ratios are written with four digits.
CLOSE = 6e-5


def total(rows, name):
    return sum(row[name] for row in rows)


def of_kind(name, kind, inherited):
    """Rules of one kind: (what must hold, whether it does, whether it holds beside running threads too)."""
    yield "the peak is not below what is live", kind["peak_bytes"] >= kind["live_bytes"], True
    made, ended = kind["allocations"], kind["frees"] + kind["live_blocks"]
    # A forked child frees what it did not allocate.
    yield "allocations are frees and live blocks", made <= ended if inherited else made == ended, False
    yield "no bytes without a block", kind["live_blocks"] > 0 or kind["live_bytes"] == 0, False
    yield "cached blocks have bytes", (kind["pooled_blocks"] > 0) == (kind["pooled_bytes"] > 0), False
    if "graph_memory" in kind:
        of = kind["graph_memory"]
        yield "graphs use no more than is reserved for them", of["used_bytes"] <= of["reserved_bytes"], False
        for what in ("used", "reserved"):
            yield f"no more is {what} for graphs than ever", of[f"{what}_bytes"] <= of[f"{what}_peak_bytes"], False
    if "requested_bytes" in kind:
        yield "no more was asked for than is held", kind["requested_bytes"] <= kind["live_bytes"], False
    if kind["pooled"]:
        yield "hits and misses are allocations", kind["pool_hits"] + kind["pool_misses"] <= made, False
        if name not in ("pinned", "host"):  # there small blocks share what the driver or the system gave
            yield "what did not hit came from the driver", kind["pool_hits"] + kind["driver_allocs"] >= made, False
    else:
        pool = ("pool_hits", "pool_misses", "pooled_blocks", "pooled_bytes")
        yield "without a pool nothing is pooled", not any(kind[figure] for figure in pool), True
    yield from of_classes(kind)
    sizes = kind.get("sizes", [])
    yield "sizes are sorted and each is there once", [row["block_bytes"] for row in sizes] == sorted(
        {row["block_bytes"] for row in sizes}), True
    yield "the sizes' blocks are among the kind's", total(sizes, "live_blocks") <= kind["live_blocks"], False
    yield "the sizes' bytes are among the kind's", sum(
        row["block_bytes"] * row["live_blocks"] for row in sizes) <= kind["live_bytes"], False


def of_classes(kind):
    classes = kind.get("classes", [])
    if not classes:
        return
    yield "classes are sorted and each is there once", [row["class"] for row in classes] == sorted(
        {row["class"] for row in classes}), True
    yield "the classes' hits are the kind's", total(classes, "hits") == kind["pool_hits"], False
    yield "the classes' cached blocks are the kind's", total(classes, "cached_blocks") == kind["pooled_blocks"], False
    yield "the classes' cached bytes are the kind's", total(classes, "cached_bytes") == kind["pooled_bytes"], False
    yield "the classes' allocations are among the kind's", total(classes, "allocations") <= kind["allocations"], False
    yield "the classes' live blocks are among the kind's", total(classes, "live_blocks") <= kind["live_blocks"], False
    for row in classes:
        where = f"class {row['class']}: "
        yield where + "no more hits than allocations", row["hits"] <= row["allocations"], False
        yield where + "the high water is not below what is live", row["high_water_blocks"] >= row["live_blocks"], False
        if "live_bytes" in row:
            yield where + "no more was asked for than is held", row["requested_bytes"] <= row["live_bytes"], False


def of_fragments(fragments):
    live, free = fragments["live_bytes"], fragments["free_bytes"]
    yield "what is reserved is live or free", fragments["reserved_bytes"] == live + free, True
    yield "the largest free block is part of what is free", fragments["largest_free_bytes"] <= free, True
    external = 1 - fragments["largest_free_bytes"] / free if free else 0
    if "external" in fragments:
        yield "external is 1 - largest / free", math.isclose(fragments["external"], external, abs_tol=CLOSE), True
    if "worst" in fragments:
        worst = fragments["worst"]
        yield "what is live was reserved, at the worst", worst["live_bytes"] <= worst["reserved_bytes"], False
        most = fragments.get("reserved_peak_bytes", worst["reserved_bytes"])
        yield "no more was reserved at the worst than ever", worst["reserved_bytes"] <= most, False
    if "reserved_peak_bytes" in fragments:
        yield "no more is reserved than ever", fragments["reserved_bytes"] <= fragments["reserved_peak_bytes"], False
    if "requested_bytes" in fragments:
        internal = 1 - fragments["requested_bytes"] / live if live else 0
        yield "internal is 1 - requested / live", math.isclose(fragments["internal"], internal, abs_tol=CLOSE), True
    yield "internal comes with what was requested", ("internal" in fragments) == ("requested_bytes" in fragments), True


# By class, what is worst first.
RANKS = {"lost": 0, "indirectly lost": 0, "held only by the driver": 1, "possibly lost": 2}
NEVER_JUDGED = "never freed, went with its context"


def order_of(row):
    drivers_own = row["kind"] == "host" and row["class"] == "held only by the driver"
    return (3 if drivers_own else RANKS.get(row["class"], 3)), -row["bytes"]


def of_leaks(report):
    leaks = gpu_rows(report)
    for name, rows in (("GPU", leaks), ("host", host_rows(report))):
        yield f"{name} leaks are sorted, the worst first", rows == sorted(rows, key=order_of), True
        yield f"{name} leaks have an order in time", all(row["first_s"] <= row["last_s"] for row in rows), True
    for name, kind in report["kinds"].items():
        own = [row for row in leaks if row["kind"] == name and row["class"] != NEVER_JUDGED]
        if own:
            yield f"the leaks of {name} are its live blocks", total(own, "blocks") == kind["live_blocks"], False
    yield "leaks are of kinds that are there", {row["kind"] for row in leaks} <= set(report["kinds"]), True
    for row in leaks:
        if row["kind"] == "opencl":
            yield "an OpenCL leak has references left", row["created"] + row["retained"] > row["released"], False
    if report.get("judging", {}).get("why_not"):
        at_end = report["cistern"]["moment"] in ("exit", "_exit")
        yield "nothing is judged without a picture", {row["class"] for row in report["leaks"]} <= {
            "unclassified" if at_end else "live", NEVER_JUDGED}, True
    classes = report.get("host_classes")
    if classes:
        host = report["kinds"]["host"]
        alive = total(classes.values(), "blocks")
        yield (f"all host blocks are of a class ({alive} are, {host['live_blocks']} live)",
               abs(alive - host["live_blocks"]) <= 50, False)


def of_devices(report):
    for memory in report["device_memory"]:
        rest = memory["total_bytes"] - memory["free_bytes"] - memory["ours_bytes"]
        yield f"device {memory['device']}: the driver owns the rest", memory["driver_owned_bytes"] == max(rest, 0), True


def of_contexts(report):
    """Contexts that the driver did not describe are in the kind's figures alone."""
    contexts = report.get("contexts", [])
    for name, kind in report["kinds"].items():
        parts = [part for part in contexts if part["kind"] == name]
        for key in ("allocations", "live_blocks", "live_bytes", "pooled_blocks", "pooled_bytes"):
            if parts:
                yield f"{name}: contexts have no more {key}", sum(part[key] for part in parts) <= kind[key], False
    for number, part in enumerate(contexts):
        yield f"contexts {number}: the peak holds the live bytes", part["peak_bytes"] >= part["live_bytes"], False
        yield f"contexts {number}: no more are alive than made", part["alive"] <= part["created"], False
        for key in ("live_blocks", "live_bytes", "pooled_blocks", "pooled_bytes"):
            apart = sum(one[key] for one in part["contexts"])
            yield f"contexts {number}: those apart have no more {key}", apart <= part[key], False


def has_path(report, path):
    """`path` names figures by their keys, and keys may have dots in them."""
    if not path:
        return True
    if isinstance(report, list):
        return any(row["kind"] == path for row in report)
    return isinstance(report, dict) and any(
        path == key or path.startswith(key + ".") and has_path(value, path[len(key) + 1:])
        for key, value in report.items())


def of_report(report, inherited):
    for name, kind in report["kinds"].items():
        yield from ((f"{name}: {rule}", holds, always) for rule, holds, always in of_kind(name, kind, inherited))
    for name, fragments in report["fragmentation"].items():
        yield from ((f"{name}: {rule}", holds, always) for rule, holds, always in of_fragments(fragments))
    yield from of_leaks(report)
    yield from of_devices(report)
    yield from of_contexts(report)
    for name, objects in report["objects"].items():
        yield f"{name}: no more are alive than were created", objects["alive"] <= objects["created"], False
    for site in report["at_peak"]:
        kind = report["kinds"].get(site["kind"])
        yield "no site held more than the peak", not kind or site["peak_bytes"] <= kind["peak_bytes"], False
    for path in report["estimated"]:
        yield f"there is a figure {path}", has_path(report, path), True


def complaints(report, busy=False, inherited=False):
    """What is not true of a report. `busy`: other threads were at work while it was written. `inherited`: the process
    was forked."""
    wrong = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(report)]
    if wrong:
        return wrong
    rules = of_report(report, inherited)
    return [f"not true: {rule}" for rule, holds, always in rules if not holds and (always or not busy)]


def read(path, inherited=False):
    """The report of a process whose other threads were quiet at its end."""
    report = json.loads(pathlib.Path(path).read_text())
    wrong = complaints(report, inherited=inherited)
    if wrong:
        raise ValueError(f"{path}: " + "; ".join(wrong))
    return report
