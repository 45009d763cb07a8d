"""Reads a trace according to the documentation of the Trace Event Format, and refuses violations.

"Trace Event Format" (Google, 2016): the JSON Object Format is an object with traceEvents, a list of events. Every event
has "ph", "pid" and, except for metadata, "ts" in microseconds; "X" has "dur"; two "X" of a thread nest or are disjoint;
"i" has a scope; the "args" of "C" are numbers; metadata belongs to a process or a thread with events.
"""

import json
import math

ORIGIN = ("displayTimeUnit", "otherData", "traceEvents")
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}


class BadTrace(Exception):
    """An event breaks a rule."""


def _require(holds, what, event):
    if not holds:
        raise BadTrace(f"{what}: {json.dumps(event)}")


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(constant):
    raise BadTrace(f"{constant} is no number of JSON")


def _check_fields(event):
    kind = event.get("ph")
    _require(kind in ("X", "i", "C", "M"), "an unknown phase", event)
    _require(isinstance(event.get("pid"), int), "pid is no integer", event)
    _require(isinstance(event.get("name"), str) and event["name"], "no name", event)
    _require(_is_number(event.get("ts")) and event["ts"] >= 0, "ts is no time", event)
    _require(isinstance(event.get("args", {}), dict), "args is no object", event)
    if kind == "X":
        _require(_is_number(event.get("dur")) and event["dur"] >= 0, "dur is no duration", event)
    if kind == "i":
        _require(event.get("s") in ("g", "p", "t"), "no scope", event)
    if kind in ("X", "i"):
        _require(isinstance(event.get("tid"), int), "tid is no integer", event)
    if kind == "C":
        _require(event["args"] and all(map(_is_number, event["args"].values())),
                 "a counter counts numbers", event)
    if kind == "M":
        _require(event["name"] in METADATA and METADATA[event["name"]] in event["args"],
                 "unknown metadata", event)


def _check_nesting(thread):
    """Complete events of a thread nest: one begins and ends within another, or outside of it.

    Viewers have a resolution of nanoseconds.
    """
    open_until = []
    for event in sorted(thread, key=lambda one: (one["ts"], -one["dur"])):
        begin, duration = round(1000 * event["ts"]), round(1000 * event["dur"])
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        end = begin + duration
        _require(not open_until or end <= open_until[-1], "it ends after what it lies in", event)
        open_until.append(end)


class Trace:
    """A valid trace: .processes {pid: name}, .threads {(pid, tid): name}, .events."""

    def __init__(self, text):
        document = json.loads(text, parse_constant=_refuse)
        _require(set(document) <= set(ORIGIN), "unknown fields", list(document))
        self.events = document["traceEvents"]
        self.origin = document["otherData"]["origin_us"]
        self.processes, self.threads = {}, {}
        last, tids = 0, []
        for event in self.events:
            _check_fields(event)
            _require(event["ph"] == "M" or event["ts"] >= last, "time goes back", event)
            last = max(last, event["ts"])
            if event["name"] == "process_name":
                _require(event["pid"] not in self.processes, "named twice", event)
                self.processes[event["pid"]] = event["args"]["name"]
            if event["name"] == "thread_name":
                tids.append(event["tid"])
                _require((event["pid"], event["tid"]) not in self.threads, "named twice", event)
                self.threads[event["pid"], event["tid"]] = event["args"]["name"]
        # Thread numbers are unique in the system: two processes share none.
        _require(len(set(tids)) == len(tids) and not set(tids) & set(self.processes), "tids", tids)
        for event in self.events:
            _require(event["pid"] in self.processes, "a process without a name", event)
            if event["ph"] in ("X", "i"):
                _require((event["pid"], event["tid"]) in self.threads, "a thread without a name", event)
        for pid, tid in self.threads:
            _check_nesting([event for event in self.of("X") if (event["pid"], event["tid"]) == (pid, tid)])

    def of(self, phase):
        return [event for event in self.events if event["ph"] == phase]

    def counter(self, name):
        """The values of a counter over time."""
        return [event["args"] for event in self.of("C") if event["name"] == name]
