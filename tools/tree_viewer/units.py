"""Numbers with units, for readers."""

import datetime


def count(number):
    return f"{number:,}"


def plural(number, word):
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def size(number):
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:,.1f}".removesuffix(".0") + f" {units[0]}"


def duration(microseconds):
    if microseconds < 1000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:,.1f} s"


def share(part, whole):
    """Never rounds up to the whole."""
    percent = 100 * part / whole
    return f"{min(percent, 99.9) if part < whole else percent:.1f} %"


def address(number):
    return f"{number:#x}"


def shape(tensor):
    """In the library's notation: {2, 3}, and strides unless they are row-major."""
    dims = "{" + ", ".join(map(str, tensor["shape"])) + "}"
    if "strides" in tensor:
        dims += " strides {" + ", ".join(map(str, tensor["strides"])) + "}"
    return dims


def moment(microseconds):
    """A time since the epoch, in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(microseconds // 1_000_000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{microseconds} µs"
    return f"{when:%Y-%m-%d %H:%M:%S}.{int(microseconds) % 1_000_000 // 1000:03d} UTC"


def signed(number, show):
    """A difference, shown with its sign."""
    return "±0" if number == 0 else ("+" if number > 0 else "−") + show(abs(number))


def fine_duration(microseconds):
    """A time that may be far less than a microsecond."""
    if microseconds >= 10:
        return duration(round(microseconds))
    return f"{microseconds * 1000:,.0f} ns" if microseconds < 1 else f"{microseconds:.1f} µs"


def short(number):
    """A count for the axis of a chart."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if number >= limit:
            return f"{number / (limit if unit != 'k' else 1000):.3g}{unit}"
    return str(number)
