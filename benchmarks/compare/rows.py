"""Merges rows of several rounds, with their variation.

A program measures a row in samples, and reports their minimum, median and 99th percentile; some
also report "above", the median of the excess of a sample over a bare launch beside it. A round runs
each program once, cgtree's and the peers' in turn, so that a machine that slows down in between
slows down all of them.
"""

import statistics

NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
STATISTICS = ("min", "median", "p99", "above")


def name_of(row):
    """Returns the name of a row without google/benchmark's additions."""
    added = ("iterations:", "manual_time", "real_time", "repeats:", "min_time:", "threads:1")
    return "/".join(part for part in row["name"].split("/") if not part.startswith(added)
                    or (part.startswith("threads:1") and part != "threads:1"))


def nanoseconds_of(row):
    """Returns {statistic: ns} of a row as a program wrote it; {} of a failed row."""
    found = {}
    for statistic in STATISTICS:
        for unit in ("ns", "us"):
            if f"{statistic}_{unit}" in row:
                found[statistic] = row[f"{statistic}_{unit}"] * NANOSECONDS[unit]
    if not found and not row.get("error_occurred") and "real_time" in row:
        found["median"] = row["real_time"] * NANOSECONDS[row.get("time_unit", "ns")]
    return found


def read(document):
    """Returns {name: {statistic: ns}} of a result file. For a name that occurs several times, the
    repetition with the least median is used."""
    rows = {}
    for row in document.get("benchmarks", []):
        if row.get("run_type", "iteration") != "iteration":
            continue
        name, times = name_of(row), nanoseconds_of(row)
        if times and (name not in rows or times["median"] < rows[name]["median"]):
            rows[name] = times
    return rows


def merge(rounds):
    """Returns {name: row} of a list of read() rows: the least minimum, the median of medians, the
    median of the 99th percentiles and of "above", and the medians themselves."""
    merged = {}
    for name in dict.fromkeys(name for rows in rounds for name in rows):
        of_rounds = [rows[name] for rows in rounds if name in rows]
        medians = [times["median"] for times in of_rounds]
        merged[name] = {
            "min": min(times.get("min", times["median"]) for times in of_rounds),
            "median": statistics.median(medians),
            "p99": statistics.median(times.get("p99", times["median"]) for times in of_rounds),
            "medians": medians,
        }
        above = [times["above"] for times in of_rounds if "above" in times]
        if above:
            merged[name]["above"] = statistics.median(above)
    return merged


def noise_of(row):
    """Returns the spread of the rounds' medians, relative to the median."""
    return (max(row["medians"]) - min(row["medians"])) / row["median"] if row["median"] else 0.0


def best_of(rows, names):
    """Returns the (name, row) of least median among the existing names, or None."""
    there = [(rows[name]["median"], name) for name in names if name in rows]
    return (min(there)[1], rows[min(there)[1]]) if there else None
