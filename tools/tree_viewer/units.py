"""Numbers with units, for people."""


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
    """As the library prints it: {2, 3}, and strides where they are not row-major."""
    dims = "{" + ", ".join(map(str, tensor["shape"])) + "}"
    if "strides" in tensor:
        dims += " strides {" + ", ".join(map(str, tensor["strides"])) + "}"
    return dims
