#!/usr/bin/env python3
"""Reports: why calls of contexts did not replay, the costs of recordings, advice, and where replays hang.

A report is made of a snapshot (docs/snapshot.md), of an event file (docs/events.md), or of the files of watches of
several processes (docs/hangs.md). `cgtree.report()`, `python -m cgtree report` and the program `cgtree_report` are
this file, which needs the standard library alone.
"""

import bisect
import dataclasses
import json
import math
import os
import re
import sys
import unicodedata

USAGE = """\
usage: report FILE...

Prints why calls did not replay, what recordings cost, and what to change in the code. FILE
has the text of snapshot_json(), or is WatchOptions::event_file, which may have
several contexts; - is the standard input. Of several files there is a report of each.

Of files that have what progress_json() makes of ProgressWatch::report(), one for each process,
it prints where replays hang and what each rank waits for.

Exit status: 0 done, 2 bad usage, or a file that cannot be read or is none of these.
"""


class NoReport(ValueError):
    """A text has no report. The message says why, and names the wrong field of a damaged text."""


# ---- Words --------------------------------------------------------------------------------------
# The words of explain() and advice() in the library, in the same order. A test compares both.

SKIP_REASONS = {
    "disabled": ("compiled with enabled = false", "compile it with CompileOptions::enabled = true"),
    "no_graph_scope": ("called while a NoGraph lives on this thread", "end the NoGraph before the call"),
    "no_graphs": ("the device has no graphs", "use a device with graphs: cuda, or host"),
    "nested_call": (
        "called inside another step function, whose recording includes it",
        "nothing: it is replayed with the outer function"),
    "foreign_capture": (
        "other code is capturing the stream, and its graph includes the work",
        "call it before or after that capture, or leave the capture to cgtree"),
    "other_device": ("an input lives on another device", "copy the input to the context's device first"),
    "other_partition": (
        "the caller's stream belongs to a partition of the processors (a green context), and a recording "
        "would replay on those of the context",
        "give the context a stream of that partition: ContextOptions::stream"),
    "overlapping_inputs": (
        "two inputs share memory, the function writes into one of them, and a graph would work on a copy of "
        "one alone",
        "declare both static, or pass tensors that lie apart"),
    "capture_failed": (
        "an earlier capture failed, most often because the work synchronises, queries or allocates outside "
        "the pool",
        "move what synchronises or queries out of the function, or of Steps out of what runs between begin() "
        "and end(), or into an eager_break(); and allocate with empty(), or before"),
    "capture_disturbed": (
        "another thread has invalidated an earlier capture: it has waited for the device, or for the legacy "
        "stream",
        "nothing, if it was once: the call is captured again later; else keep other threads from "
        "synchronising the device or the legacy stream while calls are recorded, or precapture()"),
    "keeps_tensor": (
        "the function keeps a tensor that it made while it was captured, where each replay would write",
        "make what the function keeps in its first call, or before, or return it"),
    "static_changed": (
        "static inputs have other addresses than recorded, and OnStaticChange::kThrow forbids it",
        "choose OnStaticChange::kRecord or kDemote"),
    "function_limit": (
        "the function has as many recordings as CompileOptions::max_recordings",
        "raise CompileOptions::max_recordings, or let AtLimit::kEvict drop old ones"),
    "context_limit": (
        "the context has as many recordings as ContextOptions::max_recordings",
        "raise ContextOptions::max_recordings, or let AtLimit::kEvict drop old ones"),
    "graph_bytes_limit": (
        "the graphs of the context take as much memory as ContextOptions::max_graph_bytes",
        "raise ContextOptions::max_graph_bytes, or let AtLimit::kEvict drop old recordings"),
    "pool_limit": (
        "memory is too short for a recording beside what the context holds",
        "leave the pools more memory: raise ContextOptions::max_bytes, hold fewer outputs, or let "
        "AtLimit::kEvict drop old recordings"),
    "time_limit": (
        "warming up and recording have taken as long as ContextOptions::max_recording_time",
        "raise ContextOptions::max_recording_time"),
    "frozen": (
        "no recording fits, and nothing is recorded while the function is frozen",
        "unfreeze() it, or record such calls before freeze()"),
    "backs_off": (
        "the last recordings were replayed too rarely to pay, and the next one waits",
        "keep static inputs at one address, or let recordings stay: raise the limit that evicts them, and "
        "pass as inputs the outputs that mark_step() ends"),
    "changing_guard": (
        "a guard has answered otherwise too often for recordings to pay, and the next one waits",
        "ask for what changes rarely, or let the work read the value in a tensor or a step block"),
    "dynamic_axis": (
        "the size of an axis has varied, and AxisPolicy::kSkip is for that",
        "give the axis buckets, or AxisPolicy::kExact"),
    "size_not_listed": (
        "the size of an axis is not in the list of AxisPolicy::kAllowList",
        "add the size to the list, or give the axis buckets"),
    "size_limit": (
        "an axis has had as many sizes as AxisOptions::max_sizes",
        "raise AxisOptions::max_sizes, pad the sizes to buckets, or let AtMaxSizes::kEvict drop old ones"),
    "above_largest_bucket": ("an axis is larger than the largest of its buckets", "add a larger bucket"),
    "not_recorded": (
        "no recording holds the sizes of the call, and calls make none",
        "precapture() the sizes, or let a SizeLearner find them"),
    "too_much_padding": (
        "padding would make the work larger than CompileOptions::max_waste times",
        "add buckets near such sizes, or raise CompileOptions::max_waste"),
    "unsafe_padding": (
        "zeros would pad an input that is not floating, and the function writes another input: a zero may be "
        "an index, a slot or a length",
        "give InputOptions::padding a value that is no index, such as -1, or the last row, zeros or anything"),
}
# The caller asks for these, or gets a graph in another way.
_ON_PURPOSE = {"disabled", "no_graph_scope", "nested_call", "foreign_capture"}
_LIMITS = {"function_limit", "context_limit", "graph_bytes_limit", "time_limit"}

CAUSES = {
    "first": "its first",
    "made_again": "its recording was dropped",
    "bad_input": "an input was null or stale",
    "input_count": "another number of inputs",
    "key": "another key",
    "shape": "another shape or type",
    "guard": "another answer of a guard",
    "static_moved": "a static input moved",
    "output_moved": "another output as an input",
    "alignment": "an input was less aligned",
    "overlap": "inputs shared memory",
    "output_held": "an output was held",
}
# The cause for each kind of difference. A later kind means that more of a recording fits.
_CAUSE_OF = {
    "unusable": "bad_input",
    "input_count": "input_count",
    "key": "key",
    "signature": "shape",
    "guard": "guard",
    "static_address": "static_moved",
    "managed_address": "output_moved",
    "alignment": "alignment",
    "overlap": "overlap",
    "footprint": "output_held",
}
_KINDS = list(_CAUSE_OF)

_SIGN = re.compile(r"(?<![\w:])(?:(Context|Compile|Input|Output|Axis)Options::(\w+)( = true)?|option `keys`"
                   r"|(AtLimit|OnForeignPointer|WhileMissing|OnStaticChange|Rebind|AxisPolicy"
                   r"|AtMaxSizes|AboveLargest)::k(\w+)(?: or k(\w+))?)(?![\w:])")


def spelled(text):
    """Returns a text with the options named as in Python; the text names them as in C++."""
    def choice(enumeration, value):
        option = "policy" if enumeration == "AxisPolicy" else _snake(enumeration)
        return f'{option}="{_snake(value)}"'

    def name(match):
        options, member, is_true, enumeration, *values = match.groups()
        if enumeration:
            return " or ".join(choice(enumeration, value) for value in values if value)
        if options is None:
            return "option keys"
        if member == "dynamic":
            return "the option " + {"Input": "dynamic", "Output": "outputs_dynamic"}.get(options, member)
        if is_true:
            return f"{member} = true"
        return f"{member} of the {'function' if options == 'Compile' else options.lower()}"

    return _SIGN.sub(name, text)


def _snake(name):
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


# ---- Fields -------------------------------------------------------------------------------------

class _BadField(Exception):
    pass


def _refuse(key, value, expected):
    given = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    given = given if len(given) <= 40 else given[:37] + "..."
    raise _BadField(f'"{key}" is {given}, and {expected} is expected')


def _is_count(value):
    return type(value) is int and 0 <= value < 1 << 64


def _is_list_of(kind):
    return lambda value: isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def _is_time(value):
    return type(value) in (int, float) and 0 <= value < 1 << 63


# A kind of field: a check, the words for a right value, and the value of a missing field.
_COUNT = (_is_count, "a number that is not negative", 0)
_TIME = (_is_time, "a number that is not negative", 0)
_TEXT = (lambda value: isinstance(value, str), "a string", "")
_FLAG = (lambda value: isinstance(value, bool), "true or false", False)
_OBJECT = (lambda value: isinstance(value, dict), "an object", {})
_OBJECTS = (_is_list_of(dict), "a list of objects", [])
_TEXTS = (_is_list_of(str), "a list of strings", [])
_COUNTS = (lambda value: isinstance(value, list) and all(map(_is_count, value)), "a list of sizes", [])
_PAIRS = (lambda value: isinstance(value, list) and all(
    isinstance(pair, list) and len(pair) == 2 and all(map(_is_count, pair)) for pair in value),
    "a list of sizes with their counts", [])


def _at(of, key, kind=_COUNT):
    """Returns a field of an object, or 0, "" or an empty list for one that is not there."""
    is_right, expected, missing = kind
    value = of.get(key, missing)
    if not is_right(value):
        _refuse(key, value, expected)
    return value


def _need(of, key, kind=_COUNT):
    if key not in of:
        raise _BadField(f'"{key}" is missing')
    return _at(of, key, kind)


def _finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _parsed(text):
    """Returns the value of a JSON text, or None for another text."""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # refuses halves of pairs
        return value
    except (ValueError, RecursionError):
        return None


# ---- Facts --------------------------------------------------------------------------------------

@dataclasses.dataclass
class Change:
    """The first difference between a call and the nearest recording, or between the last two warm-ups."""

    kind: str
    input: int = 0
    name: str = ""
    recorded: str = ""
    given: str = ""
    text: str = ""  # one sentence with both sides


@dataclasses.dataclass
class Axis:
    """A dynamic axis of a function, and the sizes that calls had along it."""

    name: str
    actual: int = 0  # the sum of the sizes
    padded: int = 0  # the sum of the same sizes as they are padded
    buckets: list = dataclasses.field(default_factory=list)
    sizes: dict = dataclasses.field(default_factory=dict)  # calls by size: the most frequent sizes, and the largest


@dataclasses.dataclass
class Function:
    """One function; of an event file, all functions of one name."""

    name: str
    calls: int = 0
    replays: int = 0
    recordings: int = 0
    warm_ups: int = 0
    failures: int = 0
    evictions: int = 0
    skips: dict = dataclasses.field(default_factory=dict)   # count by reason
    causes: dict = dataclasses.field(default_factory=dict)  # number of recordings by cause
    changed: object = None  # the Change of its last warm-up
    last_failure: str = ""
    axes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Recording:
    """One recording, also an evicted one that an event file mentions."""

    function: int  # index into Facts.functions
    us: int = 0    # time of the recording
    footprint_bytes: int = 0
    graph_bytes: int = 0
    replays: int = 0
    has_moved: bool = True  # an input moved at a replay, or this is not known
    cause: object = None    # the Change against the nearest recording; None for a first one
    copied: list = dataclasses.field(default_factory=list)   # (input, bytes) that the root node copies
    foreign: list = dataclasses.field(default_factory=list)  # references to memory that nothing keeps alive


@dataclasses.dataclass
class Times:
    """Timed replays of a function: sums in nanoseconds, except `eager`."""

    count: int = 0
    found_idle: int = 0
    device: int = 0
    host: int = 0
    eager: int = 0  # least host time of a call without a graph; 0: none was seen

    def saved(self, replays):
        """Returns the host time that this many replays have saved."""
        return max(replays * (self.eager - self.host // self.count), 0) if self.count else 0


@dataclasses.dataclass
class Facts:
    """One context, as of the snapshot or of the last event."""

    context: str = ""
    device: str = ""
    generations: int = 0
    live_outputs: int = 0
    live_bytes: int = 0
    pool_bytes: int = 0
    graph_bytes: int = 0
    functions: list = dataclasses.field(default_factory=list)
    recordings: list = dataclasses.field(default_factory=list)
    times: dict = dataclasses.field(default_factory=dict)  # by name of a function that was timed
    held: dict = dataclasses.field(default_factory=dict)   # outputs that are held, by function, if known
    has_replays: bool = True                               # False: the source has no replays
    left_out: int = 0                                      # lines that are not events


def _change(entry):
    """Returns the Change, or None for an unknown kind."""
    if _at(entry, "kind", _TEXT) not in _CAUSE_OF:
        return None
    return Change(entry["kind"], _at(entry, "input"),
                  *(_at(entry, key, _TEXT) for key in ("name", "recorded", "given", "text")))


def _first_change(entry):
    changes = map(_change, _at(_at(entry, "cause", _OBJECT), "changes", _OBJECTS))
    return next((change for change in changes if change), None)


def _known(counts, names):
    """Returns the counts of those names."""
    return {name: _at(counts, name) for name in names if name in counts}


def _function(entry):
    function = Function(_at(entry, "name", _TEXT))
    for counter in ("calls", "warm_ups", "recordings", "replays", "failures", "evictions"):
        setattr(function, counter, _at(entry, counter))
    function.skips = _known(_at(entry, "skips", _OBJECT), SKIP_REASONS)
    function.causes = _known(_at(entry, "recording_causes", _OBJECT), CAUSES)
    function.changed = _change(_at(entry, "changed", _OBJECT))
    function.last_failure = _at(entry, "last_failure", _TEXT)
    for axis in _at(entry, "axes", _OBJECTS):
        sizes = {}
        for size, count in _at(axis, "sizes", _PAIRS):
            sizes[size] = sizes.get(size, 0) + count
        function.axes.append(Axis(_at(axis, "axis", _TEXT), _at(axis, "actual"), _at(axis, "padded"),
                                  list(_at(axis, "buckets", _COUNTS)), sizes))
    return function


def _recording(node, function):
    return Recording(
        function, _at(node, "record_us"), _at(node, "footprint_bytes"), _at(node, "estimated_graph_bytes"),
        _at(node, "replays"), _at(node, "root_patches") > 0, _first_change(node),
        [(number, _at(one, "bytes")) for number, one in enumerate(_at(node, "inputs", _OBJECTS))
         if _at(one, "treatment", _TEXT) == "copied"],
        [_at(one, "what", _TEXT) for one in _at(_at(node, "audit", _OBJECT), "foreign", _OBJECTS)])


def _snapshot_facts(snapshot):
    if _at(snapshot, "version") != 1:
        raise NoReport(f"a snapshot of version {snapshot.get('version', 0)} is there, this reads version 1")
    facts = Facts(_at(snapshot, "context", _TEXT), _at(snapshot, "device", _TEXT), _at(snapshot, "generation"),
                  _at(snapshot, "live_outputs"), _at(snapshot, "live_bytes"), _at(snapshot, "reserved_bytes"))
    indices = {}  # by id
    for function in _at(snapshot, "functions", _OBJECTS):
        indices[_at(function, "id")] = len(facts.functions)
        facts.functions.append(_function(function))
    holders = {}  # by slot
    for node in _at(snapshot, "nodes", _OBJECTS):
        function = indices.get(_at(node, "function_id"))
        if function is None:
            continue  # it was dropped while the snapshot was taken
        facts.recordings.append(_recording(node, function))
        facts.graph_bytes += facts.recordings[-1].graph_bytes
        for output in _at(node, "outputs", _OBJECTS):
            if "holds" in output:
                holders[_at(output, "slot")] = _at(_at(output, "holds", _OBJECT), "function", _TEXT)
    for function in holders.values():
        facts.held[function] = facts.held.get(function, 0) + 1
    for times in _at(snapshot, "replay_times", _OBJECTS):
        facts.times[_at(times, "function", _TEXT)] = Times(*(_at(times, key) for key in (
            "count", "found_idle", "device_ns", "host_ns", "eager_ns")))
    return facts


class _EventFacts:
    """The facts of one context as its events are read."""

    _MOST_SIZES = 256

    def __init__(self):
        self.facts = Facts()
        self._functions, self._recordings = {}, {}  # index by name, recording by node

    def add(self, event):
        facts, kind = self.facts, event["event"]
        facts.context = event["context"]
        facts.generations = max(facts.generations, _at(event, "generation"))
        if "live_outputs" in event:
            facts.live_outputs, facts.live_bytes = _at(event, "live_outputs"), _at(event, "live_bytes")
        if kind == "open":
            facts.device, facts.has_replays = _at(event, "device", _TEXT), _at(event, "has_replays", _FLAG)
        elif kind == "counters":
            pools = _at(event, "pool_bytes", _OBJECT)
            facts.graph_bytes = _at(event, "graph_bytes")
            facts.pool_bytes = sum(_at(pools, pool) for pool in pools)
        elif "function" in event:
            self._add_of_function(kind, event)

    def take(self):
        self.facts.times = {name: times for name, times in self.facts.times.items() if times.count}
        return self.facts

    def _add_of_function(self, kind, event):
        name = _at(event, "function", _TEXT)
        index = self._functions.setdefault(name, len(self.facts.functions))
        if index == len(self.facts.functions):
            self.facts.functions.append(Function(name))
        function = self.facts.functions[index]
        add = getattr(self, "_add_" + kind, None)
        if add is not None:
            add(event, function, index)
        function.calls = (function.recordings + function.replays + function.warm_ups + function.failures
                          + sum(function.skips.values()))
        axes = _at(event, "axes", _OBJECT)
        for axis in sorted(axes):
            self._note_axis(function, axis, _at(axes, axis, _OBJECT))

    # Each of the next functions adds events of one kind.

    def _add_record(self, event, function, index):
        function.recordings += 1
        recording = Recording(index, _at(event, "us"), _at(event, "bytes"), cause=_first_change(event))
        self._recordings[_at(event, "node")] = recording
        self.facts.recordings.append(recording)
        cause = _at(event, "reason", _TEXT)
        if cause in CAUSES:
            function.causes[cause] = function.causes.get(cause, 0) + 1

    def _add_foreign_pointer(self, event, _function, _index):
        recording = self._recordings.get(_at(event, "node"))
        if recording is not None:
            recording.foreign.append(_at(event, "what", _TEXT))

    def _add_replay(self, event, function, _index):
        function.replays += 1
        recording = self._recordings.get(_at(event, "node"))
        if recording is not None:
            recording.replays += 1

    def _add_device_time(self, event, function, _index):
        times = self.facts.times.setdefault(function.name, Times())
        times.count += 1
        times.found_idle += _at(event, "found_idle", _FLAG)
        times.device += int(_at(event, "us", _TIME) * 1000)
        times.host += int(_at(event, "host_us", _TIME) * 1000)

    def _add_skip(self, event, function, _index):
        reason = _at(event, "reason", _TEXT)
        if reason in SKIP_REASONS:
            function.skips[reason] = function.skips.get(reason, 0) + 1
        self._note_eager(event, function)

    def _add_evict(self, event, function, _index):
        function.evictions += 1
        recording = self._recordings.get(_at(event, "node"))
        if recording is not None:
            recording.replays = _at(event, "replays")

    def _add_warm_up(self, event, function, _index):
        function.warm_ups += 1
        if "changed" in event:
            function.changed = _change(_at(event, "changed", _OBJECT))
        self._note_eager(event, function)

    def _add_failure(self, event, function, _index):
        function.failures += 1
        function.last_failure = _at(event, "what", _TEXT)

    def _note_eager(self, event, function):
        ns = 1000 * _at(event, "us")
        times = self.facts.times.setdefault(function.name, Times())
        if ns:
            times.eager = min(times.eager or ns, ns)

    def _note_axis(self, function, name, size):
        axis = next((axis for axis in function.axes if axis.name == name), None)
        if axis is None:
            axis = Axis(name)
            function.axes.append(axis)
        actual, padded = _at(size, "actual"), _at(size, "padded")
        axis.actual += actual
        axis.padded += padded
        if actual in axis.sizes or len(axis.sizes) < self._MOST_SIZES:
            axis.sizes[actual] = axis.sizes.get(actual, 0) + 1
        if padded > actual and padded not in axis.buckets:
            axis.buckets.append(padded)


def _lines(text):
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _event_facts(text):
    contexts, left_out = {}, 0  # by process and name
    for line in _lines(text):
        event = _parsed(line)
        if not isinstance(event, dict) or not _at(event, "event", _TEXT) or "context" not in event:
            left_out += 1
            continue
        key = _at(event, "process"), _at(event, "context", _TEXT)
        contexts.setdefault(key, _EventFacts()).add(event)
    found = [facts.take() for facts in contexts.values()]
    if found:
        found[0].left_out = left_out
    return found


def read_facts(text):
    """Returns the Facts of a snapshot, or of each context of an event file in the order in which they appear.

    A cut line, or a line without an event, is left out. Raises NoReport for another text.
    """
    try:
        whole = _parsed(text)
        if isinstance(whole, dict) and _at(whole, "schema", _TEXT) == "cgtree.snapshot":
            return [_snapshot_facts(whole)]
        facts = _event_facts(text)
    except _BadField as error:
        raise NoReport(f"a report cannot be made of this: {error}") from None
    if facts:
        return facts
    if '"cgtree.snapshot"' in text:
        raise NoReport("a report is made of a whole snapshot: the text is cut, or was changed, and is no JSON")
    raise NoReport("a report is made of snapshot_json(), or of the lines of an event file: the text is "
                   "neither")


# ---- Sizes --------------------------------------------------------------------------------------

class _LowestLine:
    """The least value of lines y = offset - slope * x; slopes and queries ascend."""

    def __init__(self):
        self._lines, self._first = [], 0

    def add(self, slope, offset, number):
        lines = self._lines
        while len(lines) - self._first >= 2 and (
                (offset - lines[-2][1]) * (lines[-1][0] - lines[-2][0])
                <= (lines[-1][1] - lines[-2][1]) * (slope - lines[-2][0])):
            lines.pop()
        lines.append((slope, offset, number))

    def least(self, x):
        lines = self._lines
        while (self._first + 1 < len(lines)
               and lines[self._first + 1][1] - lines[self._first + 1][0] * x
               < lines[self._first][1] - lines[self._first][0] * x):
            self._first += 1
        slope, offset, number = lines[self._first]
        return offset - slope * x, number


def suggested(histogram, most):
    """Returns the cheapest lists of at most 1, 2, ..., `most` buckets, except those that save nothing.

    The histogram has (size, count), ascending. The last list is that of the library's suggest_buckets(), with
    the size as cost. Dynamic programming over the sizes, one bucket more in each round. The cost of padding
    sizes [b, e) to the last of them is (calls[e] - calls[b]) * size[e - 1]: lines in the size, so a round takes
    time linear in the number of sizes.
    """
    entries = [(size, count) for size, count in histogram if count > 0 and size > 0]
    calls = [0]
    for _, count in entries:
        calls.append(calls[-1] + count)
    n = len(entries)
    least, rounds, lists = [0] + [None] * n, [], []
    while n and len(rounds) < min(n, most):
        lines, after, begin = _LowestLine(), list(least), [None] * (n + 1)
        for e in range(1, n + 1):
            if least[e - 1] is not None:
                lines.add(calls[e - 1], least[e - 1], e - 1)
            size = entries[e - 1][0]
            value, b = lines.least(size)
            if after[e] is None or value + calls[e] * size < after[e]:
                after[e], begin[e] = value + calls[e] * size, b
        if rounds and after[n] >= least[n]:
            break
        rounds.append(begin)
        least = after
        lists.append(_buckets_of(entries, rounds))
    return lists


def _buckets_of(entries, rounds):
    found, end = [], len(entries)
    for begin in reversed(rounds):
        if end > 0 and begin[end] is not None:
            found.append(entries[end - 1][0])
            end = begin[end]
    return found[::-1]


# ---- Advice -------------------------------------------------------------------------------------

# Thresholds above which a count is not an accident.
_ENOUGH_RECORDINGS = 2
_ENOUGH_REPLAYS = 10
_ENOUGH_EVICTIONS = 4
_MANY_KEYS = 8          # of warm-ups or recordings that are never replayed
_SHARE_OF_CALLS = 10    # fewer than a tenth of the calls may be an accident
_LARGE_COPY = 4096      # bytes
_MUCH_PADDING = 1.5     # padded sizes over actual sizes
_WORTH_A_CHANGE = 0.9   # of the padded sizes: the most that better buckets may leave


@dataclasses.dataclass
class Advice:
    """A change to the code, and the numbers in its favour."""

    text: str
    numbers: str
    weight: int  # number of calls concerned


def _plural(count, one):
    return f"{count} {one}{'' if count == 1 else 's'}"


class _Type:
    """The parts of a text such as "float32 {4, 2} strides {4, 1} on cuda:0"."""

    def __init__(self, text):
        self.dtype = text.split(" ", 1)[0]
        self.dims = text[len(self.dtype):].split("}", 1)[0]
        self.device = text[text.rfind(" "):] if " " in text else ""

    def sizes(self):
        sizes = self.dims.split("{", 1)[-1]
        return sizes.split(", ") if sizes else []


def _varying_axis(before, now):
    """Returns the only axis along which the sizes of two types differ, or None."""
    before, now = before.sizes(), now.sizes()
    axes = [axis for axis, sizes in enumerate(zip(before, now)) if sizes[0] != sizes[1]]
    return axes[0] if len(axes) == 1 and len(before) == len(now) else None


def _advice_on_type(change, given_input):
    recorded, given = _Type(change.recorded), _Type(change.given)
    if recorded.dtype != given.dtype:
        return (f"pass {given_input} as {recorded.dtype}, as it was recorded; calls with elements of "
                f"{given.dtype} have recordings of their own")
    if recorded.device != given.device:
        return f"pass {given_input} on{recorded.device}, as it was recorded"
    if recorded.dims == given.dims:
        return f"pass {given_input} with the strides that were recorded, or a copy of its elements"
    axis = _varying_axis(recorded, given)
    which = "" if axis is None else f", axis {axis},"
    return (f"pass {given_input} as it was recorded, or declare the axis that varies{which} in "
            "InputOptions::dynamic and give it buckets")


def _name_of_input(change):
    return f"'{change.name}'" if change.name else f"input {change.input}"


def advice_on(change):
    """Returns the change in the code that avoids a difference, as a phrase."""
    one = _name_of_input(change)
    if change.kind == "signature":
        return _advice_on_type(change, one)
    return {
        "unusable": f"pass a tensor that is alive as {one}: keep() an output that is to outlive mark_step()",
        "input_count": "pass as many inputs and buffers as in the recorded call, or compile one function for "
                       "each number",
        "key": "leave out of the key what the work does not depend on, or round an integer of it up with the "
               "option `keys`",
        "guard": f"let {one} answer as before: each answer has recordings of its own",
        "static_address": f"keep {one} at one address, or do not declare it static: then it is copied; a binding of Steps may be copied, or be per session",
        "managed_address": f"pass the output of the same call as {one}, and let go of the outputs of a step "
                           "before the next, in a context with steps by mark_step()",
        "alignment": f"align {one} as it was when recorded, or choose Rebind::kNever",
        "overlap": f"pass {one} and {change.recorded} that lie apart",
        "footprint": "let go of outputs before the next call, or in a context with steps call mark_step() "
                     "where one begins",
    }[change.kind]


def _advice_on_warm_ups(changed, has_axes):
    """Returns the change that makes the calls of a function alike, after its inputs differed at each warm-up."""
    if changed.kind != "signature":
        return advice_on(changed)
    if has_axes:
        return "give the axes that vary buckets, so that calls of several sizes share a recording"
    before, now, one = _Type(changed.recorded), _Type(changed.given), _name_of_input(changed)
    if before.dtype != now.dtype:
        return f"pass {one} with elements of one type"
    if before.dims == now.dims:
        return f"pass {one} with the same strides each time"
    axis = _varying_axis(before, now)
    which = "the axes that vary" if axis is None else f"axis {axis}"
    return (f"declare {which} of {one} in InputOptions::dynamic and give it buckets, so that calls of several "
            "sizes share a recording")


@dataclasses.dataclass
class _SameCause:
    """The recordings of one function that were made for the same difference of the same input."""

    count: int = 0
    us: int = 0
    replays: int = 0  # of these recordings
    skipped: int = 0  # calls that a limit kept from another recording
    last: object = None

    def add(self, other):
        self.count += other.count
        self.us += other.us
        self.replays += other.replays
        self.skipped += other.skipped

    def is_costly(self):
        """Recordings that are replayed often are worth their cost, such as those of two alternating buffers."""
        return self.count >= _ENOUGH_RECORDINGS and self.replays < _ENOUGH_REPLAYS * self.count

    def is_of_lost_keys(self):
        """Each key has a recording, as it should: the fault is keys that do not come again."""
        return self.count >= _MANY_KEYS and self.replays < self.count


class _Adviser:
    def __init__(self, facts):
        self._facts = facts
        self._found = []
        causes = {}  # by function, number of the kind and input
        for one in facts.recordings:
            if one.cause is not None:
                key = one.function, _KINDS.index(one.cause.kind), one.cause.input
                same = causes.setdefault(key, _SameCause())
                same.add(_SameCause(1, one.us, one.replays))
                same.last = one.cause
        self._causes = {key: causes[key] for key in sorted(causes)}

    def take(self):
        for index, function in enumerate(self._facts.functions):
            wasteful = self._wasteful_cause(index)
            self._on_failures(function)
            self._on_warm_ups(function)
            self._on_skips(function, wasteful)
            if wasteful is None:
                self._on_evictions(function)
            for axis in function.axes:
                self._on_padding(function, axis)
        self._on_times()
        self._on_causes()
        self._on_copies()
        self._on_foreign_memory()
        return sorted(self._found, key=lambda advice: -advice.weight)

    def _add(self, text, numbers, weight):
        self._found.append(Advice(text, numbers, weight))

    def _wasteful_cause(self, index):
        """Returns the cause of most recordings of the function if they are hardly replayed, or None."""
        recordings = sum(one.function == index for one in self._facts.recordings)
        for (of, _, _), same in self._causes.items():
            kind = same.last.kind
            is_of_axes = kind == "signature" and self._facts.functions[of].axes
            if (of == index and 2 * same.count > recordings and same.is_costly() and not is_of_axes
                    and kind not in ("unusable", "input_count", "key")):
                return same
        return None

    def _on_failures(self, function):
        if function.failures and _SHARE_OF_CALLS * function.failures >= function.calls:
            self._add(f"'{function.name}': mend what it throws: a call that throws is neither a warm-up nor a "
                      "recording",
                      f"{function.failures} of {_plural(function.calls, 'call')} threw, the last: "
                      f"{function.last_failure}", function.failures)

    def _on_warm_ups(self, function):
        """Each call has other inputs than the call before, so that none is the second of its kind."""
        lost, changed = function.warm_ups - min(function.recordings, function.warm_ups), function.changed
        if changed is None or lost < _MANY_KEYS or _SHARE_OF_CALLS * lost < function.calls:
            return
        self._add(f"'{function.name}': {_advice_on_warm_ups(changed, bool(function.axes))}",
                  f"{lost} of {_plural(function.calls, 'call')} were warmed up and not recorded: {changed.text}",
                  lost)

    def _on_skips(self, function, wasteful):
        for reason, (explanation, to_do) in SKIP_REASONS.items():
            count = function.skips.get(reason, 0)
            if count == 0 or reason in _ON_PURPOSE:
                continue
            if wasteful is not None and reason in _LIMITS:  # more recordings would be as useless
                wasteful.skipped += count
                continue
            if reason == "above_largest_bucket":
                for axis in function.axes:
                    largest = max(axis.sizes, default=0)
                    if axis.buckets and largest > max(axis.buckets):
                        to_do = (f"add a bucket of {largest} to axis '{axis.name}', whose largest is "
                                 f"{max(axis.buckets)}")
            self._add(f"'{function.name}': {to_do}",
                      f"{count} of {_plural(function.calls, 'call')} ran eagerly: {explanation}", count)

    def _on_evictions(self, function):
        if function.evictions >= _ENOUGH_EVICTIONS and 2 * function.evictions >= function.recordings:
            self._add(f"'{function.name}': raise the limit at which its recordings are evicted",
                      f"{function.evictions} of {_plural(function.recordings, 'recording')} were evicted, and may "
                      "have been made again", function.evictions)

    def _on_padding(self, function, axis):
        sizes = sorted((size, count) for size, count in axis.sizes.items() if size > 0)
        if axis.actual == 0 or axis.padded < _MUCH_PADDING * axis.actual or not sizes:
            return
        better = (suggested(sizes, max(len(axis.buckets), 4)) or [[]])[-1]
        if _padded_sum(sizes, better) > _WORTH_A_CHANGE * axis.padded:
            return
        calls = sum(count for _, count in sizes)
        self._add(f"'{function.name}': give axis '{axis.name}' buckets that fit its sizes, such as "
                  f"{{{', '.join(map(str, better))}}}",
                  f"{100 * (1 - axis.actual / axis.padded):.0f} % of its padded size is padding: {axis.actual} "
                  f"became {axis.padded} in {_plural(calls, 'call')}", calls)

    def _on_times(self):
        for function, times in sorted(self._facts.times.items()):
            if times.count >= _ENOUGH_REPLAYS and times.host > times.device:
                self._add(f"'{function}': it is bound by the host: put more work into one call",
                          f"a replay takes {times.host / 1000 / times.count:.1f} us on the host and "
                          f"{times.device / 1000 / times.count:.1f} us on the device, in the mean of "
                          f"{_plural(times.count, 'replay')}", times.count)

    def _on_causes(self):
        of_held = _SameCause()
        for (of, _, _), same in self._causes.items():
            function, kind = self._facts.functions[of], same.last.kind
            if kind == "footprint" and self._facts.generations == 0:
                of_held.add(same)
                continue
            # Each padded size has its own recording.
            is_of_axes = kind == "signature" and bool(function.axes)
            if not (same.is_of_lost_keys() if kind == "key" else same.is_costly() and not is_of_axes):
                continue
            skipped = f", and {_plural(same.skipped, 'call')} ran eagerly at the limit" if same.skipped else ""
            self._add(f"'{function.name}': {advice_on(same.last)}",
                      f"{_plural(same.count, 'recording')} took {same.us / 1000:.1f} ms{skipped}: {same.last.text}",
                      same.count + same.skipped)
        if of_held.is_costly():
            self._on_mark_step(of_held)

    def _on_mark_step(self, same):
        facts, most = self._facts, ""
        if facts.held:
            holder = max(sorted(facts.held), key=facts.held.get)
            most = f", at least {facts.held[holder]} of them of '{holder}'"
        self._add("call mark_step() where a step begins: it was never called",
                  f"{_plural(same.count, 'recording')} took {same.us / 1000:.1f} ms because outputs were held; "
                  f"{facts.live_outputs} {'is' if facts.live_outputs == 1 else 'are'} held now{most}",
                  same.count + same.skipped + facts.live_outputs)

    def _on_copies(self):
        """An input that was at one address in all replays need not be copied."""
        copies = {}  # by function and input: bytes, replays, whether it has moved
        for one in self._facts.recordings:
            for number, size in one.copied:
                key = one.function, number
                before = copies.get(key, (0, 0, False))
                copies[key] = max(before[0], size), before[1] + one.replays, before[2] or one.has_moved
        for (function, number), (size, replays, has_moved) in sorted(copies.items()):
            if has_moved or replays < _ENOUGH_REPLAYS or size < _LARGE_COPY:
                continue
            self._add(f"'{self._facts.functions[function].name}': declare input {number} static, if its address "
                      "stays",
                      f"{size} bytes are copied at each replay, and it has not moved in "
                      f"{_plural(replays, 'replay')}", replays)

    def _on_foreign_memory(self):
        """Replays continue to use this memory after it was freed."""
        for index, function in enumerate(self._facts.functions):
            recordings = [one for one in self._facts.recordings if one.function == index and one.foreign]
            if not recordings:
                continue
            self._add(f"'{function.name}': pass or bind, or declare(), the memory that its kernels use and that "
                      "nothing keeps; when it goes, replays are wrong",
                      f"{_plural(sum(len(one.foreign) for one in recordings), 'pointer')} in "
                      f"{_plural(len(recordings), 'recording')}: {recordings[0].foreign[0]}",
                      len(recordings) + sum(one.replays for one in recordings))


def _padded_sum(sizes, buckets):
    at = [bisect.bisect_left(buckets, size) for size, _ in sizes]
    return sum(count * (buckets[i] if i < len(buckets) else size) for i, (size, count) in zip(at, sizes))


def advise(facts):
    """Returns each Advice, the weightiest first."""
    return _Adviser(facts).take()


# ---- The report of a context --------------------------------------------------------------------

MOST_LINES = 40  # of a report: they fit on a screen
_MOST_REASONS = 8
_MOST_FUNCTIONS = 8
_MOST_ADVICES = 6
_NAME_WIDTH = 24
_ADVICE_WIDTH = 160


def _fitted(text, most=_NAME_WIDTH):
    """Returns the text in one line of at most so many bytes, cut between characters."""
    data = text.encode("utf-8", "replace")
    if len(data) > most:
        text = data[:most - 3].decode("utf-8", "ignore") + "..."
    return re.sub(r"[\x00-\x1f]", " ", text)


def _column(text, width):
    """Characters of East Asia are two columns wide."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return text + " " * (width - len(text) - wide)


def _mib(size):
    return f"{size / (1 << 20):.1f} MiB"


def _recordings_of(facts, index, cause):
    """Returns the number of recordings with this cause. An earlier library tells the cause only of those that are
    kept."""
    counts = facts.functions[index].causes
    if any(counts.values()):
        return counts.get(cause, 0)
    return sum(one.function == index and cause == ("first" if one.cause is None else _CAUSE_OF[one.cause.kind])
               for one in facts.recordings)


def _reasons_of(facts):
    """Returns (reason, {function: count}) of calls that did not replay, the most frequent first."""
    reasons = {}

    def add(reason, index, count):
        if count:
            functions = reasons.setdefault(reason, {})
            functions[index] = functions.get(index, 0) + count

    for index, function in enumerate(facts.functions):
        add("warmed up", index, function.warm_ups)
        explained = 0
        for cause, text in CAUSES.items():
            count = _recordings_of(facts, index, cause)
            add(f"recorded: {text}", index, count)
            explained += count
        add("recorded", index, function.recordings - min(explained, function.recordings))
        add("failed", index, function.failures)
        for reason in SKIP_REASONS:
            add(f"ran eagerly: {reason}", index, function.skips.get(reason, 0))
    return sorted(reasons.items(), key=lambda one: -sum(one[1].values()))


def _head_text(facts):
    def total(counter):
        return sum(getattr(function, counter) for function in facts.functions)

    skipped = sum(sum(function.skips.values()) for function in facts.functions)
    text = (f"context '{_fitted(facts.context)}' on {facts.device}: {total('calls')} calls, {total('replays')} "
            "replayed")
    if not facts.has_replays:
        text += " (not in this file: event_file_has_replays is off)"
    text += (f"\n{total('recordings')} recorded, {total('warm_ups')} warmed up, {skipped} ran eagerly, "
             f"{total('failures')} failed, {facts.generations} steps"
             f"\npools {_mib(facts.pool_bytes)}, graphs {_mib(facts.graph_bytes)}, {facts.live_outputs} outputs held "
             f"of {_mib(facts.live_bytes)}\n")
    return text + (f"{facts.left_out} lines are no events\n" if facts.left_out else "")


def _reasons_text(facts):
    rows = ["", "why calls did not replay                  calls  most of them"]
    for reason, functions in _reasons_of(facts)[:_MOST_REASONS]:
        most = max(functions, key=functions.get)
        rows.append(f"  {reason:<38}{sum(functions.values()):>7}  '{_fitted(facts.functions[most].name)}' "
                    f"{functions[most]}")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _times_text(times):
    """The means of one function: time on the device, time on the host, and how often the stream was
    idle."""
    if times is None or times.count == 0:
        return ""
    return (f"{times.device / 1000 / times.count:>12.1f}{times.host / 1000 / times.count:>10.1f}"
            f"{100 * times.found_idle / times.count:>6.0f}%")


def _seconds(ns):
    return f"{ns / 1e9:.0f} s" if ns >= 10e9 else f"{1e3 * (ns / 1e9):.1f} ms"


def _savings_text(facts):
    """Says how much host time all replays have saved, and which function the most."""
    saved = [(facts.times[function.name].saved(function.replays), function.name)
             for function in facts.functions if function.name in facts.times]
    most, name = max(saved, key=lambda one: one[0], default=(0, ""))
    if most == 0:
        return ""
    times = facts.times[name]
    return (f"graphs have saved {_seconds(sum(ns for ns, _ in saved))} of the host: {_seconds(most)} in "
            f"'{_fitted(name)}', whose replays take {times.host / 1000 / times.count:.1f} us and not "
            f"{times.eager / 1000:.1f}\n")


def _costs_text(facts):
    costs = {}  # by function: recordings, us, bytes, replays
    for one in facts.recordings:
        before = costs.get(one.function, (0, 0, 0, 0))
        costs[one.function] = tuple(map(sum, zip(before, (
            1, one.us, one.graph_bytes + one.footprint_bytes, one.replays))))
    if not costs:
        return ""
    text = f"\n{'recordings cost':<26}{'recordings':>12}{'ms':>12}{'memory':>14}{'replays':>12}"
    text += f"{'device us':>12}{'host us':>10}{'idle':>7}\n" if facts.times else "\n"
    for index, (count, us, size, replays) in sorted(
            costs.items(), key=lambda one: (-one[1][1], one[0]))[:_MOST_FUNCTIONS]:
        name = facts.functions[index].name
        text += (f"  {_column(_fitted(name), _NAME_WIDTH)}{count:>12}{us / 1000:>12.1f}{_mib(size):>14}"
                 f"{replays if facts.has_replays else '-':>12}{_times_text(facts.times.get(name))}\n")
    return text + _savings_text(facts)


def _advice_text(facts):
    advices = advise(facts)[:_MOST_ADVICES]
    if not advices:
        return "\nadvice: nothing to change was found\n"
    return "\nadvice\n" + "".join(
        f"{number}. {_fitted(advice.text, _ADVICE_WIDTH)}\n   {_fitted(advice.numbers, _ADVICE_WIDTH)}\n"
        for number, advice in enumerate(advices, start=1))


def report_text(facts):
    """Returns the report of one context, of at most MOST_LINES lines of ASCII if names are."""
    return _head_text(facts) + _reasons_text(facts) + _costs_text(facts) + _advice_text(facts)


def report_of(text):
    """Returns the report of a snapshot, or the reports of the contexts of an event file, one after the other.

    Options are named as in C++; spelled() names them as in Python. Raises NoReport for another text.
    """
    return "\n".join(map(report_text, read_facts(text)))


# ---- Watches of progress ------------------------------------------------------------------------
# The words of the library's report for the contexts of one watch. A test compares both.

_PROGRESS = "cgtree.progress"


@dataclasses.dataclass
class Mark:
    scope: str
    kernels: list
    is_collective: bool
    is_reached: bool

    def place(self):
        return f"'{self.scope}'" if self.scope else "outside of all scopes"

    def work(self):
        if not self.kernels:
            return "no kernel"
        return f"{'kernel' if len(self.kernels) == 1 else 'kernels'} {', '.join(self.kernels)}"


@dataclasses.dataclass
class Replay:
    function: str
    node: int
    number: int
    age_ms: int
    has_begun: bool
    has_ended: bool
    why_unmarked: str
    marks: list

    def name(self):
        return f"replay {self.number} of '{self.function}' (recording {self.node})"

    def first_missing(self):
        """Returns the number of the first mark that is not reached, or None. All marks before it are reached."""
        return next((number for number, mark in enumerate(self.marks) if not mark.is_reached), None)

    def collectives(self):
        return [mark for mark in self.marks if mark.is_collective]

    def collectives_reached(self):
        return sum(mark.is_reached for mark in self.collectives())


@dataclasses.dataclass
class Progress:
    """Progress of the replays of one context."""

    context: str
    device: str
    rank: int
    ranks: int
    replays: list

    def current(self):
        """Returns the first replay that has not ended, or None."""
        return next((replay for replay in self.replays if not replay.has_ended), None)


def is_progress(text):
    """Returns whether a watch has written the text."""
    return _PROGRESS in text[:64]


def read_progress(text):
    """Returns each Progress of such a text. Raises NoReport for another text, and for another version."""
    whole = _parsed(text)
    if not isinstance(whole, dict) or whole.get("schema") != _PROGRESS or whole.get("version") != 1:
        raise NoReport("no report of a ProgressWatch, or of another version: expected progress_json()")
    try:
        return [Progress(_need(context, "context", _TEXT), _need(context, "device", _TEXT), _need(context, "rank"),
                         _need(context, "ranks"), list(map(_replay, _need(context, "replays", _OBJECTS))))
                for context in _need(whole, "contexts", _OBJECTS)]
    except _BadField as error:
        raise NoReport(f"no report of a ProgressWatch: {error}") from None


def _replay(entry):
    return Replay(
        _need(entry, "function", _TEXT), _need(entry, "node"), _need(entry, "number"), _need(entry, "age_ms"),
        _need(entry, "begun", _FLAG), _need(entry, "ended", _FLAG), _need(entry, "why_unmarked", _TEXT),
        [Mark(_need(mark, "scope", _TEXT), _need(mark, "kernels", _TEXTS), _need(mark, "collective", _FLAG),
              _need(mark, "reached", _FLAG)) for mark in _need(entry, "marks", _OBJECTS)])


def _marks_text(replay):
    count, missing = len(replay.marks), replay.first_missing()
    last = max((number for number, mark in enumerate(replay.marks, start=1) if mark.is_reached), default=0)
    text = "    reached      no mark: the first work of it has not ended\n"
    if last:
        text = f"    reached      mark {last} of {count}, behind {replay.marks[last - 1].place()}\n"
    if missing is None:
        return text + "    all marks are reached, and its end is not\n"
    mark = replay.marks[missing]
    text += f"    not reached  mark {missing + 1} of {count}, behind {mark.place()}: {mark.work()}\n"
    if mark.is_collective:
        number = sum(before.is_collective for before in replay.marks[:missing]) + 1
        text += (f"    it is collective {number} of {len(replay.collectives())}, which waits for the other ranks\n")
    return text


def _context_text(context):
    text = f"context '{context.context}' on {context.device}"
    if context.ranks > 1:
        text += f", rank {context.rank} of {context.ranks}"
    current = context.current()
    if current is None:
        if not context.replays:
            return text + "\n  no replay was watched yet\n"
        return text + f"\n  all replays have ended, the last was {context.replays[-1].name()}\n"
    text += f"\n  {current.name()} has not ended, {current.age_ms / 1000:.1f} s after its launch\n"
    if not current.has_begun:
        text += ("    it has not begun: work in front of it on its stream, which is no replay, or an event that\n"
                 "    the stream waits for, does not end\n")
    elif not current.marks:
        text += f"    it leaves no marks: {current.why_unmarked}\n"
    else:
        text += _marks_text(current)
    behind = len(context.replays) - 1 - next(
        number for number, replay in enumerate(context.replays) if replay is current)
    return text + (f"  {behind} behind it\n" if behind else "")


def _difference_of(own, others):
    """Ranks make the same collectives in the same order: the first difference is the place to look at."""
    number = next((number for number, (here, there) in enumerate(zip(own, others)) if here.scope != there.scope),
                  min(len(own), len(others)))
    if number == len(own) == len(others):
        return ""
    text = ""
    if len(own) != len(others):
        text = f"; its recording has {len(others)} collectives where this one has {len(own)}"
    if number == len(own):
        return text + f", and {others[number].place()} behind them"
    if number == len(others):
        return text + f", and none like collective {number + 1}, {own[number].place()}"
    return (text + f"{', and' if text else ';'} collective {number + 1} is {others[number].place()} where here it "
            f"is {own[number].place()}")


def _where_is(other, waiting, number):
    """Returns the place of a rank, for a rank that waits for it in collective `number` (from 0) of `waiting`."""
    current = other.current()
    replay = current or (other.replays[-1] if other.replays else None)
    if replay is None:
        return "has replayed nothing that was watched"
    own, others, missing = waiting.collectives(), replay.collectives(), replay.first_missing()
    if current is None:
        text = f"has ended {replay.name()}"
    elif not current.has_begun:
        text = f"has not begun {replay.name()}"
    elif missing is not None and others:
        mark, which = replay.marks[missing], f"{replay.collectives_reached() + 1} of {len(others)}"
        text = (f"is in collective {which}, {mark.place()}" if mark.is_collective else
                f"is in front of its collective {which}, {mark.place()}: {mark.work()}")
    else:
        text = f"is in {replay.name()}"
    if replay.function != waiting.function or not others:
        return text
    if replay.number == waiting.number and replay.collectives_reached() == number and current is not None:
        return text
    return text + _difference_of(own, others)


def _ranks_text(contexts):
    text = ""
    for one in contexts:
        current = one.current()
        if one.ranks < 2 or current is None or not current.has_begun:
            continue
        missing = current.first_missing()
        if missing is None or not current.marks[missing].is_collective:
            continue
        number = current.collectives_reached()
        for other in contexts:
            if other is one or other.ranks != one.ranks or other.rank == one.rank:
                continue
            text += (f"rank {one.rank} waits in collective {number + 1}, {current.marks[missing].place()}: rank "
                     f"{other.rank} {_where_is(other, current, number)}\n")
    return text


def progress_text(contexts):
    """Returns where replays hang, and for each of several ranks the collective that it waits
    for."""
    contexts = sorted(contexts, key=lambda context: context.rank)
    return "".join(map(_context_text, contexts)) + _ranks_text(contexts)


# ---- The command line ---------------------------------------------------------------------------

def _read(name):
    """Returns the text of a file. A file that is being written may end with half a character."""
    if name == "-":
        return sys.stdin.buffer.read().decode("utf-8-sig", "replace")
    # `bazel run` starts programs in another folder than the user's.
    with open(os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), name), "rb") as file:
        return file.read().decode("utf-8-sig", "replace")


def _report_of_files(names, texts):
    """Raises NoReport with the name of the file at fault."""
    name = names[0]
    try:
        if any(map(is_progress, texts)):
            contexts = []
            for name, text in zip(names, texts):
                contexts += read_progress(text)
            return progress_text(contexts)
        reports = []
        for name, text in zip(names, texts):
            reports.append((f"{name}:\n" if len(names) > 1 else "") + report_of(text))
        return "\n".join(reports)
    except NoReport as error:
        raise NoReport(f"{name}: {error}") from None


def print_report(names, program, spell=lambda text: text):
    """Prints the report of files, or the reason why there is none on stderr. Returns the exit
    status."""
    name = ""
    try:
        texts = []
        for name in names:
            texts.append(_read(name))
        report = _report_of_files(names, texts)
        if not any(map(is_progress, texts)):
            report = spell(report)
        name = "the report"
        sys.stdout.buffer.write(report.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        print(f"{program}: {name}: {error.strerror}", file=sys.stderr)
        # The rest of the buffer would be written once more at the end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except NoReport as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    return 0


def main(arguments):
    asks_for_help = arguments in (["--help"], ["-h"])
    if arguments and not asks_for_help:
        return print_report(arguments, "report")
    print(USAGE, end="", file=sys.stdout if asks_for_help else sys.stderr)
    return 0 if asks_for_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
