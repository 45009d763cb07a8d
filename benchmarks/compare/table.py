"""The table that people read."""

from programs import rivals
from rows import best_of, noise_of

COLUMNS = f"{'min':>10}{'median':>10}{'p99':>10}{'above':>10}{'noise':>8}{'ratio':>8}  {'to':<34}{'before':>10}{'change':>9}"


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
    and what has changed since the results that were committed last."""
    lines = [f"{program.result:<44}{COLUMNS}"]
    for name, row in rows.items():
        rival = best_of(rows, rivals(program, name))
        if rival is None and only_compared and program.pairs:
            continue
        line = f"  {name:<42}" + "".join(f"{text_of(row[key]):>10}"
                                         for key in ("min", "median", "p99"))
        line += f"{text_of(row['above']) if 'above' in row else '':>10}{noise_of(row):>8.0%}"
        line += f"{row['median'] / rival[1]['median']:>8.2f}  {rival[0]:<34}" if rival else " " * 44
        if name in before:
            line += f"{text_of(before[name]['median']):>10}{change_of(row, before[name]):>9}"
        lines.append(line.rstrip())
    return lines
