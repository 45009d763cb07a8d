"""The types of the fields of a snapshot, which docs/snapshot.md lists."""

import collections
import json


class BadSnapshot(Exception):
    """The message names the file, the fault, and its place."""


# Types of values: int (at least 0, less than 2^64), str, bool; [x]: a list of x; (x, y): a list of these two; {names}:
# one of them; {str: x} by the name of a field, which may be absent if the name ends with "?", as fields of later
# libraries may; MapOf(x): any names.
MapOf = collections.namedtuple("MapOf", ["values"])

_TYPE = {"dtype": str, "shape": [int], "strides?": [int]}
_INPUT = {**_TYPE, "static": bool, "mutated": bool, "address": int,
          "treatment": {"static", "managed", "copied", "copied_back", "value", "buffer", "rebound",
                        "no_buffer"}}
_RANGE = {"address": int, "bytes": int}
_OUTPUT = {**_TYPE, "kind": {"slot", "same_as_output", "input", "constant", "copied"}, "index?": int,
           "slot?": int, "address?": int, "bytes?": int, "live?": bool,
           "holds?": {"function": str, "output": int}}
_CHANGE = {"kind": str, "input?": int, "name?": str, "recorded": str, "given": str, "text": str}
_CAUSE = {"nearest": int, "changes": [_CHANGE]}
_AUDIT = {"memory": [{"owner": str, "address": int, "bytes": int, "words": int, "number?": int,
                      "text?": str}],
          "foreign": [{"kernel": str, "place": str, "address": int, "memory_address": int,
                       "memory_bytes": int, "nodes": int, "what": str}],
          "unseen": [{"what": str, "nodes": int}]}
_SCOPES = {"paths": [str], "kernels": [str], "node_types": [str], "node_kernels": [int], "node_paths": [int],
           "node_ids?": [int], "exec_node_ids?": [int]}
_NODE = {"id": int, "parent": int, "function": str, "function_id": int, "signature": str,
         "cause": _CAUSE, "reason?": str, "reason_text?": str, "advice?": str, "followed_by": [int], "replays": int, "root_patches": int,
         "verified_replays?": int, "unverified_replays?": int, "record_us": int, "audit_us?": int,
         "graph_nodes": int, "kernel_nodes": int, "estimated_graph_bytes": int,
         "footprint_bytes": int, "footprint?": [_RANGE], "recorded_at_us?": int, "padded?": MapOf(int),
         "kept?": [_RANGE], "inputs": [_INPUT], "outputs": [_OUTPUT], "audit?": _AUDIT,
         "scopes?": _SCOPES}
_AXIS = {"axis": str, "of_key": bool,
         "policy": {"exact", "allow_list", "skip", "buckets", "multiples", "powers_of_two", "learned"},
         "buckets?": [int], "allowed?": [int], "multiple_of?": int, "largest?": int, "max_sizes?": int,
         "sizes": [(int, int)], "uncounted": int}
_FUNCTION = {"id": int, "name": str, "calls": int, "warm_ups": int, "recordings": int,
             "replays": int, "failures": int, "kept_recordings?": int, "skips": MapOf(int),
             "frozen?": bool, "evictions?": int, "axes?": [_AXIS], "capture_failure?": str,
             "why?": [{"reason": str, "text": str, "calls": int, "advice": str}],
             "warm_up_causes?": MapOf(int), "recording_causes?": MapOf(int),
             "last_failure?": str, "changed?": _CHANGE}
_SLOT = {"slot": int, "region": str, "address": int, "bytes": int, "live": bool, "workspace": bool,
         "holds?": {"function": str, "output": int}}
SNAPSHOT = {"device": str, "context?": str, "time_us?": int, "recording_us?": int,
            "generation": int, "restores": int,
            "live_outputs": int, "live_bytes": int, "reserved_bytes": int, "max_recordings": int,
            "verify_every?": int, "current": int, "functions": [_FUNCTION], "nodes": [_NODE], "slots?": [_SLOT],
            "pools": MapOf({"reserved_bytes": {"current": int, "peak": int}, "segments?": [_RANGE],
                            "blocks?": [_RANGE]})}
_NAMES = {int: "a number that is not negative", str: "a string", bool: "true or false",
          dict: "an object", list: "a list"}


def _expect(where, value, kind):
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or not 0 <= value < 2**64)):
        raise BadSnapshot(f"{where}: {_NAMES[kind]} is expected, {json.dumps(value)[:40]} is there")


def check(where, value, spec):
    if isinstance(spec, MapOf):
        _expect(where, value, dict)
        for name, item in value.items():
            check(f"{where}.{name}", item, spec.values)
    elif isinstance(spec, dict):
        _expect(where, value, dict)
        for name, item in spec.items():
            key = name.rstrip("?")
            path = f"{where}.{key}" if where else key
            if key in value:
                check(path, value[key], item)
            elif key == name:
                raise BadSnapshot(f"{path} is missing")
    elif isinstance(spec, tuple):
        _expect(where, value, list)
        if len(value) != len(spec):
            raise BadSnapshot(f"{where}: a list of {len(spec)} is expected, one of {len(value)} is there")
        for i, item in enumerate(value):
            check(f"{where}[{i}]", item, spec[i])
    elif isinstance(spec, list):
        _expect(where, value, list)
        for i, item in enumerate(value):
            check(f"{where}[{i}]", item, spec[0])
    elif isinstance(spec, set):
        _expect(where, value, str)
        if value not in spec:
            raise BadSnapshot(f"{where}: '{value}' is none of {', '.join(sorted(spec))}")
    else:
        _expect(where, value, spec)
