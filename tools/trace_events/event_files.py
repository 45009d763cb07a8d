"""Reads event files, and sorts their lines by process and context.

docs/events.md lists the fields. What cannot be read is left out and noted, never an error: a file may
be read while it is written, or after the process that wrote it was killed.
"""

import dataclasses
import json
import math


@dataclasses.dataclass
class Context:
    """What one context has written to one file. `rank` is None outside of a group."""
    name: str
    path: object
    device: str = ""
    rank: int | None = None
    ranks: int = 1
    events: list = dataclasses.field(default_factory=list)

    def rank_text(self):
        return "" if self.rank is None else f"rank {self.rank} of {self.ranks}"

    def span(self):
        """Returns the times of the first and the last event; the clock may have been set back."""
        times = [event["time_us"] for event in self.events]
        return min(times), max(times)


@dataclasses.dataclass
class Process:
    """A process of a host; its contexts may be several ranks."""
    number: int
    host: str
    contexts: list = dataclasses.field(default_factory=list)

    def name(self):
        ranks = {context.rank_text() for context in self.contexts}
        rank = ranks.pop() if len(ranks) == 1 else ""
        return (f"{rank}{', ' if rank else ''}process {self.number}"
                + (f" on {self.host}" if self.host else ""))

    def order(self):
        """Returns what sorts processes: the lowest rank first, then the one that began first."""
        ranks = [context.rank for context in self.contexts if context.rank is not None]
        return not ranks, min(ranks, default=0), self.begin()

    def begin(self):
        return min(context.span()[0] for context in self.contexts)


def is_number(value):
    """Returns whether it is a time, a size or a count, and not larger than any of those."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _finite(text):
    """Returns the float. The format of traces has no other numbers, so an event has none either."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _is_event(line):
    return (isinstance(line, dict) and isinstance(line.get("event"), str)
            and isinstance(line.get("context"), str) and isinstance(line.get("process"), int)
            and is_number(line.get("time_us")) and is_number(line.get("us", 0)))


def _lines(path, problems):
    """Returns the events of a file, and notes what is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        problems.append(f"cannot read '{path}': {error.strerror}")
        return []
    events, foreign, first = [], 0, 0
    lines = data.split(b"\n")
    if lines[-1]:
        problems.append(f"{path}: ends in the middle of line {len(lines)}, which is left out")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            event = json.loads(line, parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError):
            event = None
        if _is_event(event):
            events.append(event)
        elif line.strip():
            foreign += 1
            first = first or number
    if foreign:
        problems.append(f"{path}: {foreign} line{'s are no events' if foreign > 1 else ' is no event'}, "
                        f"from line {first} on; left out")
    if not events:
        problems.append(f"{path}: there is no event in it")
    return events


def _open(context, event):
    context.device = str(event.get("device", ""))
    if isinstance(event.get("rank"), int) and isinstance(event.get("ranks"), int):
        context.rank, context.ranks = event["rank"], event["ranks"]


def _contexts_of(path, problems):
    """Returns {(host, process): {name: Context}} of a file."""
    found, hosts = {}, {}
    for event in _lines(path, problems):
        number, name = event["process"], event["context"]
        if event["event"] == "open":
            hosts[number] = str(event.get("host", ""))
        contexts = found.setdefault((hosts.get(number, ""), number), {})
        context = contexts.setdefault(name, Context(name, path))
        if event["event"] == "open":
            _open(context, event)
        context.events.append(event)
    return found


def _add(process, context, problems):
    for other in process.contexts:
        if (other.name, other.rank) == (context.name, context.rank):
            problems.append(f"{context.path}: events of context '{context.name}' of process "
                            f"{process.number} are in {other.path} too; left out here")
            return
    process.contexts.append(context)


def _note_equal_ranks(processes, problems):
    """Contexts of one name that were the same rank at the same time are of two groups, or a mistake."""
    known = []
    for process in processes:
        for context in process.contexts:
            key, (begin, end) = (context.name, context.rank, context.ranks), context.span()
            for other_key, other, (other_begin, other_end) in known:
                if context.rank is not None and key == other_key and begin <= other_end and (
                        other_begin <= end):
                    problems.append(f"{context.path}: '{context.name}' is {context.rank_text()}, and is "
                                    f"so in {other.path} at the same time; both are shown")
            known.append((key, context, (begin, end)))


def read(paths):
    """Returns (processes, problems): the lowest rank first, and sentences about what is left out."""
    problems, found = [], {}
    for path in paths:
        for key, contexts in _contexts_of(path, problems).items():
            process = found.setdefault(key, Process(key[1], key[0]))
            for context in contexts.values():
                _add(process, context, problems)
    processes = sorted(found.values(), key=Process.order)
    for process in processes:
        process.contexts.sort(key=lambda context: (context.rank or 0, context.span()[0]))
    _note_equal_ranks(processes, problems)
    return processes, problems
