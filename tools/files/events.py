"""Reads event files (docs/events.md). Unreadable lines are left out and noted: a file may be read
while it is written, or after its process was killed.
"""

import dataclasses
import json
import math
import pathlib


class BadEvents(Exception):
    """The message names the file."""


@dataclasses.dataclass
class EventFile:
    path: pathlib.Path
    events: list    # dicts, in the order of the file
    problems: list  # sentences


def is_number(value):
    """Returns whether it is a time, a size or a count, and not larger than any of these may be."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _finite(text):
    """Returns the float. Events have no infinities or NaNs, and neither have traces made from
    them."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _parse(line):
    """Returns the event of a line, or None for another line."""
    try:
        event = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    is_event = (isinstance(event, dict) and isinstance(event.get("event"), str)
                and is_number(event.get("time_us")) and is_number(event.get("us", 0))
                and isinstance(event.get("function", ""), str)
                and isinstance(event.get("context"), str)
                and isinstance(event.get("process"), int))
    return event if is_event else None


def read(path):
    """Raises BadEvents if the file cannot be read, or has lines but no event."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise BadEvents(f"cannot read '{path}': {error.strerror}") from None
    last = lines.pop()  # b"" unless the file was cut, or is being written
    events, foreign, problems = [], [], []
    for number, line in enumerate(lines, start=1):
        if event := _parse(line):
            events.append(event)
        elif line.strip():
            foreign.append(number)
    if event := _parse(last):
        events.append(event)
    elif last.strip():
        problems.append(f"{path.name} ends in the middle of line {len(lines) + 1}, which is left out.")
    if foreign:
        numbers = ", ".join(map(str, foreign[:5])) + (" …" if len(foreign) > 5 else "")
        problems.append(f"{path.name}: {len(foreign)} of {len(lines)} lines are no events and are left "
                        f"out: line {numbers}.")
    if not events and problems:
        raise BadEvents(f"{path}: this is no event file: none of its lines is an event")
    if not events:
        problems.append(f"{path.name} has no events.")
    return EventFile(path, events, problems)
