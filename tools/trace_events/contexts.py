"""Sorts the contents of event files by process and context."""

import dataclasses

import events


@dataclasses.dataclass
class Context:
    """The events of one context in one file. `rank` is None outside of a group."""
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
        """Returns the sort key of processes: the lowest rank first, then the earliest begin."""
        ranks = [context.rank for context in self.contexts if context.rank is not None]
        return not ranks, min(ranks, default=0), self.begin()

    def begin(self):
        return min(context.span()[0] for context in self.contexts)


def _open(context, event):
    context.device = str(event.get("device", ""))
    if isinstance(event.get("rank"), int) and isinstance(event.get("ranks"), int):
        context.rank, context.ranks = event["rank"], event["ranks"]


def _contexts_of(path, problems):
    """Returns {(host, process): {name: Context}} of a file, and notes missing information."""
    found, hosts = {}, {}
    try:
        file = events.read(path)
    except events.BadEvents as error:
        problems.append(str(error))
        return found
    problems += file.problems
    for event in file.events:
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
    """Contexts of one name that were the same rank at the same time belong to two groups, or are a mistake."""
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
    """Returns (processes, problems): the lowest rank first, and sentences about left-out contexts."""
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
