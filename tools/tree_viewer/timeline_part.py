"""The timeline of events: a row for each function, and a mark for each event."""

import collections

import units
from markup import Number, fold, section, table, text

_WIDTH, _LEFT, _ROW, _TOP = 1140, 190, 24, 22
_BINS = 400       # marks in one row at most
_MOST_ROWS = 40   # functions; further ones share the last row
_MOST_LISTED = 2000
_NOT_DRAWN = {"counters", "device_time"}  # values, not events in time
# By event: the class of its mark, its shape, and the third of the row in which it lies. Replays lie behind.
_MARKS = {"warm_up": ("M0-4L4 4H-4Z", 0), "record": ("M-4-4H4V4H-4Z", 0), "verify": ("M-4 0L-1 4L5-4", 1),
          "skip": ("M0-5L4 0L0 5L-4 0Z", 1), "evict": ("M-4-4L4 4M4-4L-4 4", 2),
          "drop": ("M-4-4L4 4M4-4L-4 4", 2), "demote": ("M-4-3H4L0 4Z", 2),
          "foreign_pointer": ("M-4 0H4M0-4V4", 2), "empty_recording": ("M-4 0H4M0-4V4", 2),
          "failure": ("M0-5L5 4H-5Z", 2)}
_OTHER = ("M-3-3H3V3H-3Z", 1)


def _detail(event):
    """The subject of an event, in one line."""
    parts = [f"#{event['node']}"] if isinstance(event.get("node"), int) else []
    if event["event"] == "record" and isinstance(event.get("us"), int):
        parts.append(f"took {units.duration(event['us'])}")
    for key in ("call", "reason", "limit", "name", "what", "kernel", "left_out"):
        if isinstance(event.get(key), str):
            parts.append(event[key])
    cause = event.get("cause")
    if isinstance(cause, dict) and isinstance(cause.get("changes"), list):
        parts += [change["text"] for change in cause["changes"][:1]
                  if isinstance(change, dict) and isinstance(change.get("text"), str)]
    return ", ".join(parts)


def _are_apart(files):
    """Returns whether files are of contexts that ran at the same time, and not parts of one after another."""
    spans = sorted((min(times), max(times)) for times in
                   ([event["time_us"] for event in file.events] for file in files) if times)
    return any(later[0] <= earlier[1] for earlier, later in zip(spans, spans[1:]))


def _row_names(events):
    counts = collections.Counter(row for _, row in events)
    if len(counts) <= _MOST_ROWS:
        return sorted(counts), {}
    kept = sorted(name for name, _ in counts.most_common(_MOST_ROWS - 1))
    rest = f"{len(counts) - len(kept)} other functions"
    return [*kept, rest], {name: rest for name in counts if name not in set(kept)}


def _marks(events, names, renamed, begin, span):
    """The marks of all rows: events of one kind at the same place are one mark."""
    row_of = {name: i for i, name in enumerate(names)}
    together = collections.Counter()
    for event, name in events:
        bin_of = min(_BINS - 1, (event["time_us"] - begin) * _BINS // span)
        together[row_of[renamed.get(name, name)], event["event"], bin_of] += 1
    room = _WIDTH - _LEFT - 12
    most = max([n for (_, kind, _), n in together.items() if kind == "replay"], default=1)
    replays, marks = [], []
    for (row, kind, at), count in sorted(together.items()):
        x, y = _LEFT + (at + 0.5) / _BINS * room, _TOP + row * _ROW
        title = f"<title>{text(kind.replace('_', ' '))}: {units.count(count)}</title>"
        if kind == "replay":
            high = max(2, (_ROW - 6) * count / most)
            replays.append(f'<rect class="ev-replay" x="{x - room / _BINS / 2:.1f}" y="{y + _ROW - 3 - high:.1f}" '
                           f'width="{room / _BINS:.1f}" height="{high:.1f}">{title}</rect>')
            continue
        shape, third = _MARKS.get(kind, _OTHER)
        name = kind if kind in _MARKS else "other"
        marks.append(f'<path class="ev ev-{name}" transform="translate({x:.1f} {y + 7 + 5 * third})" '
                     f'd="{shape}">{title}</path>')
    return "".join(replays + marks)


def _picture(events):
    begin, end = events[0][0]["time_us"], events[-1][0]["time_us"]
    span = end - begin + 1
    names, renamed = _row_names(events)
    rows = "".join(
        f'<text x="{_LEFT - 10}" y="{_TOP + i * _ROW + 16}" text-anchor="end">'
        f"{text(name if len(name) <= 26 else name[:25] + '…') or '–'}</text>"
        f'<path class="line" d="M{_LEFT} {_TOP + (i + 1) * _ROW - 2}H{_WIDTH - 12}"/>'
        for i, name in enumerate(names))
    high = _TOP + len(names) * _ROW + 22
    ticks = "".join(
        f'<text x="{_LEFT + (_WIDTH - 12 - _LEFT) * i / 4:.0f}" y="{high - 6}" '
        f'text-anchor="{"start" if i == 0 else "end" if i == 4 else "middle"}">'
        f"{'0' if i == 0 else '+' + units.duration(span * i // 4)}</text>" for i in range(5))
    label = (f"Timeline of {units.plural(len(events), 'event')} of {units.plural(len(names), 'function')} in "
             f"{units.duration(span)} from {units.moment(begin)} on; the tables below have the same")
    return (f'<div class="scroll" role="group" tabindex="0" aria-label="Timeline">'
            f'<svg class="chart timeline" role="img" aria-label="{text(label)}" viewBox="0 0 {_WIDTH} {high}" '
            f'width="{_WIDTH}" height="{high}">{rows}{ticks}'
            f"{_marks(events, names, renamed, begin, span)}</svg></div>")


def _legend(kinds):
    items = "".join(
        f'<li><svg aria-hidden="true" class="swatch" viewBox="-9 -6 18 12">'
        + ('<rect class="ev-replay" x="-5" y="-5" width="10" height="10"/>' if kind == "replay" else
           f'<path class="ev ev-{kind if kind in _MARKS else "other"}" d="{_MARKS.get(kind, _OTHER)[0]}"/>')
        + f"</svg>{text(kind.replace('_', ' '))}</li>" for kind in kinds)
    return f'<ul class="legend">{items}</ul>'


def _counts(events, kinds):
    counts = collections.Counter((row, event["event"]) for event, row in events)
    rows = [[text(name) or "–", *(Number(counts[name, kind], units.count(counts[name, kind])) for kind in kinds)]
            for name in sorted({name for name, _ in counts})]
    return table("Events by function", ["Function", *(kind.replace("_", " ") for kind in kinds)], rows, sorts=True)


def render(files):
    """`files`: EventFiles. Their events are merged by time; contexts that ran side by side have separate rows."""
    apart = _are_apart(files)
    events = sorted(((event, f"{file.path.name}: {name}" if apart else name) for file in files
                     for event in file.events if event["event"] not in _NOT_DRAWN
                     for name in [event.get("function", "(context)")]),
                    key=lambda pair: pair[0]["time_us"])
    if not events:
        return ""
    begin = events[0][0]["time_us"]
    kinds = sorted({event["event"] for event, _ in events}, key=lambda kind: (kind == "replay", kind))
    listed = [pair for pair in events if pair[0]["event"] != "replay"]
    rows = [[f"+{units.fine_duration(event['time_us'] - begin)}", text(event["event"].replace("_", " ")),
             text(row), text(_detail(event))] for event, row in listed[-_MOST_LISTED:]]
    left = len(listed) - len(rows)
    summary = f"The last {len(rows):,} events" + (f" of {len(listed):,}" if left else "") + ", without replays"
    body = (f'<div class="drawn">{_legend(kinds)}{_picture(events)}</div>' + _counts(events, kinds)
            + fold(summary, table("Events in order of time", ["Time", "Event", "Function", "What"], rows)))
    names = ", ".join(f"{text(file.path.name)} ({units.plural(len(file.events), 'event')})" for file in files)
    return section("Events", body, f"{names}. The first was at {units.moment(begin)}.")
