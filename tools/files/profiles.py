"""Reads the launches of a profile: of Nsight Systems as SQLite, or of PyTorch's profiler as JSON."""

import contextlib
import dataclasses
import gzip
import json
import sqlite3
import zlib


class BadProfile(Exception):
    """The message names the file."""


@dataclasses.dataclass(frozen=True)
class Launch:
    ns: int     # not negative: a launch that ends before it begins, as in a broken file, takes no time
    node: int   # the number of the node; 0: no node, or not known
    graph: int  # the number of the executable graph, if the profile has it separately from the node's; else 0


@dataclasses.dataclass
class Profile:
    launches: list
    originals: dict  # number of a cloned node -> number of the node from which it was cloned

    def numbers_of(self, launch):
        """Yields the numbers by which a snapshot may know the node, the likeliest first."""
        if not launch.node:
            return
        if launch.graph:
            yield launch.graph << 32 | launch.node & 0xFFFFFFFF
        seen, number = set(), launch.node
        while number and number not in seen:  # clones of clones; a cycle is a broken file
            yield number
            seen.add(number)
            number = self.originals.get(number)


_SQLITE = b"SQLite format 3\0"
# Sources of these names: the SQLite schema reference of Nsight Systems.
_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_CLONES = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")
_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}  # of events in PyTorch's traces


def _columns(database, table):
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}  # none of a missing table


def _read_sqlite(path):
    launches, originals = [], {}
    with contextlib.closing(sqlite3.connect(f"file:{path.resolve().as_uri()[7:]}?mode=ro", uri=True)) as database:
        for table in _TABLES:
            columns = _columns(database, table)
            if not {"start", "end"} <= columns:
                continue
            node = "graphNodeId" if "graphNodeId" in columns else "0"
            launches += [Launch(max(0, end - start), number or 0, 0) for start, end, number in database.execute(
                f'SELECT start, "end", {node} FROM {table}')]
        for table in _CLONES:
            if {"graphNodeId", "originalGraphNodeId"} <= _columns(database, table):
                originals.update(database.execute(
                    f"SELECT graphNodeId, originalGraphNodeId FROM {table} "
                    "WHERE graphNodeId IS NOT NULL AND originalGraphNodeId IS NOT NULL"))
    return Profile(launches, originals)


def _number(value):
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _read_json(data):
    trace = json.loads(data)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    launches = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in _CATEGORIES:
            continue
        arguments = event.get("args") or {}
        launches.append(Launch(max(0, round(float(event["dur"]) * 1000)), _number(arguments.get("graph node id")),
                               _number(arguments.get("graph id"))))
    return Profile(launches, {})


def read(path):
    """Returns the Profile. Raises BadProfile."""
    try:
        data = path.read_bytes()
        if data.startswith(_SQLITE):
            profile = _read_sqlite(path)
        else:
            profile = _read_json(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    except OSError as error:
        raise BadProfile(f"cannot read '{path}': {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OverflowError, RecursionError,
            sqlite3.Error, zlib.error) as error:
        raise BadProfile(f"'{path}' is neither an SQLite export of Nsight Systems nor a trace of PyTorch's "
                         f"profiler: {error}") from None
    if not profile.launches:
        raise BadProfile(f"'{path}' has no kernel, copy or memset")
    return profile
