"""Makes a trace in the Trace Event Format, which ui.perfetto.dev and chrome://tracing read.

A process is a process of the trace, and a context a thread of it. Calls are complete events ("X"), events between or
inside calls are instants ("i"), and the memory and recordings of a context are counters ("C"). The replays whose time
on the device was measured are complete events of a thread beside the context's.
"""

import events

CALLS = ("warm_up", "record", "replay", "skip")
ON_DEVICE = "device_time"
COMMON = ("event", "time_us", "context", "process", "us")


def _arguments(event):
    return {key: value for key, value in event.items() if key not in COMMON}


def _name(event):
    """Returns "replay decode", "skip decode: capture_failed", or only the event."""
    text = event["event"]
    if isinstance(event.get("function"), str):
        text += f" {event['function']}"
    if event["event"] == "skip" and isinstance(event.get("reason"), str):
        text += f": {event['reason']}"
    return text


def _padded_percent(event):
    """Returns the share of padding in the padded work of a call, or None if it has no dynamic axes."""
    share, axes = 1.0, event.get("axes")
    if not isinstance(axes, dict) or not axes:
        return None
    for axis in axes.values():
        sizes = [axis.get(key) for key in ("actual", "padded")] if isinstance(axis, dict) else [None]
        if not all(map(events.is_number, sizes)) or not 0 < sizes[0] <= sizes[1]:
            return None
        share *= sizes[0] / sizes[1]
    return round(100 * (1 - share), 3)


class _Track:
    """One context: makes its events, in the order of time.

    Calls of a context follow one another, but the wall clock has microseconds and may be set back:
    then an overlapping call is moved behind the call before it.
    """

    def __init__(self, process, thread, context, origin):
        self._ids = {"pid": process, "tid": thread}
        self._process = process
        self._context = context
        self._origin = origin
        self._now = 0.0
        self.set_back = 0.0  # the largest step of the clock, in microseconds
        self.events = []

    def _time(self, event):
        time = event["time_us"] - self._origin
        self.set_back = max(self.set_back, self._now - time)
        return max(time, self._now)

    def _add_call(self, event):
        end = self._time(event)
        begin = round(max(end - event.get("us", 0), self._now), 3)  # viewers count nanoseconds
        self._now = end
        self.events.append({"ph": "X", "cat": event["event"], "name": _name(event), "ts": begin,
                            "dur": round(end - begin, 3), **self._ids, "args": _arguments(event)})

    def _add_instant(self, event):
        self.events.append({"ph": "i", "s": "t", "cat": event["event"], "name": _name(event),
                            "ts": self._time(event), **self._ids, "args": _arguments(event)})

    def _add_counter(self, event, name, values):
        values = {key: value for key, value in values.items() if events.is_number(value)}
        if values:
            self.events.append({"ph": "C", "name": f"{self._context.name}: {name}",
                                "ts": self._time(event), "pid": self._process, "args": values})

    def _add_held(self, event):
        if "live_outputs" in event:
            self._add_counter(event, "live outputs", {"outputs": event["live_outputs"]})
            self._add_counter(event, "live output bytes", {"bytes": event.get("live_bytes")})

    def _add_counters(self, event):
        self._add_counter(event, "recordings", {"recordings": event.get("recordings")})
        self._add_counter(event, "graph bytes", {"bytes": event.get("graph_bytes")})
        regions = event.get("pool_bytes")
        if isinstance(regions, dict):
            self._add_counter(event, "pool bytes", regions)

    def make(self):
        for event in self._context.events:
            kind = event["event"]
            if kind == ON_DEVICE:
                continue
            if kind in CALLS:
                self._add_call(event)
                percent = _padded_percent(event)
                if percent is not None:
                    self._add_counter(event, f"padding of {event.get('function')}",
                                      {"percent": percent})
            elif kind == "counters":
                self._add_counters(event)
            else:
                self._add_instant(event)
            self._add_held(event)
        return self.events


def _began_on_device(event):
    """Returns the begin of a replay on the device, by the clock of the host."""
    began = event.get("began_us")
    return began if events.is_number(began) else event["time_us"] - event.get("us", 0)


def _device_slices(context, process, thread, origin):
    """Returns the replays of a context that were timed, as slices that do not overlap."""
    slices, end = [], 0.0
    for event in sorted((one for one in context.events if one["event"] == ON_DEVICE),
                        key=_began_on_device):
        begin = max(round(_began_on_device(event) - origin, 3), end)
        end = max(begin, round(_began_on_device(event) - origin + event.get("us", 0), 3))
        slices.append({"ph": "X", "cat": ON_DEVICE, "name": str(event.get("function", ON_DEVICE)),
                       "ts": begin, "dur": round(end - begin, 3), "pid": process, "tid": thread,
                       "args": _arguments(event)})
    return slices


def _metadata(kind, value, **ids):
    key = "sort_index" if kind.endswith("sort_index") else "name"
    return {"ph": "M", "name": kind, "ts": 0, **ids, "args": {key: value}}


def _title(context, process_name):
    texts = [context.device] if context.device else []
    if context.rank is not None and not process_name.startswith(context.rank_text()):
        texts.append(context.rank_text())
    return context.name + (f" ({', '.join(texts)})" if texts else "")


def _began(processes, shifts):
    """Returns the begin of the first call: the first event of a context may be its end."""
    times = [(_began_on_device(event) if event["event"] == ON_DEVICE else
              event["time_us"] - event.get("us", 0)) - shifts.get(i, 0)
             for i, process in enumerate(processes) for context in process.contexts
             for event in context.events]
    return min(times)


def make(processes, shifts):
    """Returns (trace, notes). `shifts`: {index of a process: microseconds to subtract from its
    times}.

    Times of the trace are microseconds since the first call; otherData.origin_us has the time of that call.
    """
    origin = _began(processes, shifts)
    metadata, shown, notes = [], [], []
    thread = len(processes)  # viewers take a thread with the number of a process for its first thread
    for i, process in enumerate(processes):
        ids = {"pid": i + 1}
        metadata.append(_metadata("process_name", process.name(), **ids))
        metadata.append(_metadata("process_sort_index", i, **ids))
        for context in process.contexts:
            thread += 1
            metadata.append(_metadata("thread_name", _title(context, process.name()), tid=thread, **ids))
            track = _Track(i + 1, thread, context, origin + shifts.get(i, 0))
            shown += track.make()
            slices = _device_slices(context, i + 1, thread + 1, origin + shifts.get(i, 0))
            if slices:
                thread += 1
                title = f"{_title(context, process.name())}: on the device"
                metadata.append(_metadata("thread_name", title, tid=thread, **ids))
                shown += slices
            if track.set_back > 1000:
                notes.append(f"{context.path}: the clock was set back by {track.set_back / 1000:.1f} ms; "
                             f"events of '{context.name}' after that are shown at once")
    shown.sort(key=lambda event: event["ts"])  # stable: events at one instant stay in order
    return {"displayTimeUnit": "ms", "otherData": {"origin_us": origin},
            "traceEvents": metadata + shown}, notes
