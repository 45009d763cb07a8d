"""The table for readers."""

from programs import rivals
from rows import best_of, noise_of

TIMES = ("min", "median", "p99", "above")


def text_of(nanoseconds):
    """Returns a time with three digits and its unit, right-aligned."""
    for limit, factor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit * 0.9995:
            break
    else:
        factor, unit = 1e9, "s"
    value = nanoseconds / factor
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def change_of(row, before):
    """Returns the change of the median, marked if both runs' noise does not explain it."""
    change = row["median"] / before["median"] - 1
    is_clear = abs(change) > max(noise_of(row), 0.05)
    return f"{change:+.0%}{'!' if is_clear else ' '}"


def lines_of(program, rows, before, only_compared):
    """Returns a line per row: its times and noise, its ratio to the row that it is compared with,
    and its change since the last committed results."""
    shown = [(name, row, best_of(rows, rivals(program, name))) for name, row in rows.items()]
    shown = [(name, row, rival) for name, row, rival in shown
             if rival or not only_compared or not program.pairs]
    wide = max((len(name) + 2 for name, _, _ in shown), default=0)
    wide_to = max((len(rival[0]) for _, _, rival in shown if rival), default=0)
    lines = [f"{program.result:<{wide}}" + "".join(f"{time:>10}" for time in TIMES) +
             f"{'noise':>8}{'ratio':>8}  {'to':<{wide_to}}{'before':>10}{'change':>9}"]
    for name, row, rival in shown:
        line = f"  {name:<{wide - 2}}" + "".join(f"{text_of(row[key]) if key in row else '':>10}"
                                                 for key in TIMES) + f"{noise_of(row):>8.0%}"
        if rival:
            line += f"{row['median'] / rival[1]['median']:>8.2f}  {rival[0]:<{wide_to}}"
        else:
            line += " " * (10 + wide_to)
        if name in before:
            line += f"{text_of(before[name]['median']):>10}{change_of(row, before[name]):>9}"
        lines.append(line.rstrip())
    return lines
