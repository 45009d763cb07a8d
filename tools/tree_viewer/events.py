"""Reads event files (docs/events.md). Lines that cannot be read are counted, and the rest is shown."""

import dataclasses
import json


class BadEvents(Exception):
    """The message names the file."""


@dataclasses.dataclass
class EventFile:
    name: str
    events: list    # dicts, in the order of the file
    problems: list  # sentences


def _parse(line):
    """Returns the event of a line, or None if it is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if (not isinstance(event, dict) or not isinstance(event.get("event"), str)
            or not isinstance(event.get("time_us"), int) or isinstance(event["time_us"], bool)
            or not 0 <= event["time_us"] < 2**63 or not isinstance(event.get("function", ""), str)):
        return None
    return event


def read(path):
    """Raises BadEvents if the file cannot be read, or has lines but no event."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise BadEvents(f"cannot read '{path}': {error.strerror}") from None
    last = lines.pop()  # "" unless the file was cut, or is being written
    events, bad, problems = [], [], []
    for number, line in enumerate(lines, start=1):
        if event := _parse(line):
            events.append(event)
        elif line.strip():
            bad.append(number)
    if last.strip():
        event = _parse(last)
        if event:
            events.append(event)
        else:
            problems.append(f"{path.name} ends in the middle of line {len(lines) + 1}, which is left out.")
    if bad:
        numbers = ", ".join(map(str, bad[:5])) + (" …" if len(bad) > 5 else "")
        problems.append(f"{path.name}: {len(bad)} of {len(lines)} lines are no events and are left out: "
                        f"line {numbers}.")
    if not events and (bad or last.strip()):
        raise BadEvents(f"{path}: this is no event file: none of its lines is an event")
    if not events:
        problems.append(f"{path.name} has no events.")
    return EventFile(path.name, events, problems)
