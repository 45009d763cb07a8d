"""Reads a snapshot, and checks it against the fields that docs/snapshot.md lists."""

import collections
import json

SCHEMA, VERSION = "cgtree.snapshot", 1


class BadSnapshot(Exception):
    """The message names the file, what is wrong with it, and where."""


# What a value must be: int (not negative), str, bool; [x]: a list of x; {names}: one of them; {str: x}
# by the name of a field, which may be absent if the name ends with "?"; MapOf(x): any names.
MapOf = collections.namedtuple("MapOf", ["values"])

_TYPE = {"dtype": str, "shape": [int], "strides?": [int]}
_INPUT = {**_TYPE, "static": bool, "mutated": bool, "address": int,
          "treatment": {"static", "managed", "copied", "copied_back", "value", "buffer", "no_buffer"}}
_OUTPUT = {**_TYPE, "kind": {"slot", "same_as_output", "input", "constant"}, "index?": int,
           "address?": int, "bytes?": int, "live?": bool,
           "holds?": {"function": str, "output": int}}
_CAUSE = {"nearest": int,
          "changes": [{"kind": str, "input?": int, "name?": str, "recorded": str, "given": str,
                       "text": str}]}
_AUDIT = {"memory": [{"owner": str, "address": int, "bytes": int, "words": int, "number?": int,
                      "text?": str}],
          "foreign": [{"kernel": str, "place": str, "address": int, "memory_address": int,
                       "memory_bytes": int, "nodes": int, "what": str}],
          "unseen": [{"what": str, "nodes": int}]}
_NODE = {"id": int, "parent": int, "function": str, "function_id": int, "signature": str,
         "cause": _CAUSE, "followed_by": [int], "replays": int, "root_patches": int,
         "verified_replays": int, "unverified_replays": int, "record_us": int, "audit_us": int,
         "graph_nodes": int, "kernel_nodes": int, "estimated_graph_bytes": int,
         "footprint_bytes": int, "inputs": [_INPUT], "outputs": [_OUTPUT], "audit": _AUDIT}
_FUNCTION = {"id": int, "name": str, "calls": int, "warm_ups": int, "recordings": int,
             "replays": int, "failures": int, "kept_recordings": int, "skips": MapOf(int),
             "frozen": bool,
             "capture_failure?": str}
_SNAPSHOT = {"device": str, "generation": int, "restores": int, "live_outputs": int,
             "live_bytes": int, "reserved_bytes": int, "max_recordings": int, "verify_every": int,
             "current": int, "functions": [_FUNCTION], "nodes": [_NODE],
             "pools": MapOf({"reserved_bytes": {"current": int, "peak": int}})}
_NAMES = {int: "a number that is not negative", str: "a string", bool: "true or false",
          dict: "an object", list: "a list"}


def _expect(where, value, kind):
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or value < 0)):
        raise BadSnapshot(f"{where}: {_NAMES[kind]} is expected, {json.dumps(value)[:40]} is there")


def _check(where, value, spec):
    if isinstance(spec, MapOf):
        _expect(where, value, dict)
        for name, item in value.items():
            _check(f"{where}.{name}", item, spec.values)
    elif isinstance(spec, dict):
        _expect(where, value, dict)
        for name, item in spec.items():
            key = name.rstrip("?")
            path = f"{where}.{key}" if where else key
            if key in value:
                _check(path, value[key], item)
            elif key == name:
                raise BadSnapshot(f"{path} is missing")
    elif isinstance(spec, list):
        _expect(where, value, list)
        for i, item in enumerate(value):
            _check(f"{where}[{i}]", item, spec[0])
    elif isinstance(spec, set):
        _expect(where, value, str)
        if value not in spec:
            raise BadSnapshot(f"{where}: '{value}' is none of {', '.join(sorted(spec))}")
    else:
        _expect(where, value, spec)


def _check_tree(tree):
    functions = {function["id"] for function in tree["functions"]}
    ids = {node["id"] for node in tree["nodes"]}
    if len(ids) < len(tree["nodes"]) or 0 in ids:
        raise BadSnapshot("nodes: two have the same id, or one has the root's, which is 0")
    if tree["current"] not in ids | {0}:
        raise BadSnapshot(f"current: there is no node {tree['current']}")
    parents = {node["id"]: node["parent"] for node in tree["nodes"]}
    for i, node in enumerate(tree["nodes"]):
        if node["function_id"] not in functions:
            raise BadSnapshot(f"nodes[{i}].function_id: there is no function {node['function_id']}")
        for other in [node["parent"], *node["followed_by"]]:
            if other not in ids | {0}:
                raise BadSnapshot(f"nodes[{i}]: there is no node {other}")
    rooted = {0}
    for start in parents:
        path, node = [], start
        while node not in rooted:
            if len(path) > len(parents):
                raise BadSnapshot(f"nodes: {start} has no path to the root")
            path.append(node)
            node = parents[node]
        rooted.update(path)


def check(tree):
    """Raises BadSnapshot, unless `tree` is a snapshot of this version."""
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        raise BadSnapshot(f"this is no snapshot: the field 'schema' is not '{SCHEMA}'")
    if tree.get("version") != VERSION:
        raise BadSnapshot(f"version {json.dumps(tree.get('version'))} is there, this reads "
                          f"{VERSION}: use the tree_viewer of the library that wrote it")
    _check("", tree, _SNAPSHOT)
    _check_tree(tree)


def read(path):
    """The snapshot in a file. Raises BadSnapshot, which names the file."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        check(tree)
        return tree
    except OSError as error:
        raise BadSnapshot(f"cannot read '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSnapshot(f"{path}: not JSON: it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadSnapshot(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise BadSnapshot(f"{path}: this is no snapshot: it is nested too deep") from None
    except BadSnapshot as error:
        raise BadSnapshot(f"{path}: {error}") from None
