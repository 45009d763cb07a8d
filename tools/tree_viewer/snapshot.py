"""Reads a snapshot, and checks that its recordings make a tree."""

import json

import schema
from schema import BadSnapshot

SCHEMA, VERSION = "cgtree.snapshot", 1


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


def _check_axes(tree):
    """Checks the requirements of the rules of axes."""
    for i, function in enumerate(tree["functions"]):
        for k, axis in enumerate(function.get("axes", [])):
            where = f"functions[{i}].axes[{k}]"
            for policy, field in (("buckets", "buckets"), ("allow_list", "allowed")):
                if axis["policy"] == policy and field not in axis:
                    raise BadSnapshot(f"{where}.{field} is missing")
            if axis["policy"] == "multiples" and axis.get("multiple_of", 0) == 0:
                raise BadSnapshot(f"{where}.multiple_of must be positive")
            for sizes in (axis.get("buckets", []), axis.get("allowed", []),
                          [size for size, _ in axis["sizes"]]):
                if any(left >= right for left, right in zip(sizes, sizes[1:])):
                    raise BadSnapshot(f"{where}: sizes do not ascend")


def check(tree):
    """Raises BadSnapshot, unless `tree` is a snapshot of this version."""
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        raise BadSnapshot(f"this is no snapshot: the field 'schema' is not '{SCHEMA}'")
    if tree.get("version") != VERSION:
        raise BadSnapshot(f"version {json.dumps(tree.get('version'))} is there, this reads "
                          f"{VERSION}: use the tree_viewer of the library that wrote it")
    schema.check("", tree, schema.SNAPSHOT)
    _check_tree(tree)
    _check_axes(tree)


# Fields that earlier libraries did not write, and the parts that need them.
_LATER = [("slots", lambda tree: "slots" in tree, "the maps of the pools"),
          ("footprint", lambda tree: all("footprint" in node for node in tree["nodes"]),
           "which recordings write which memory, and what each function has to itself"),
          ("axes", lambda tree: all("axes" in item for item in tree["functions"]),
           "dynamic axes"),
          ("audit", lambda tree: all("audit" in node for node in tree["nodes"]),
           "which memory recordings refer to"),
          ("time_us", lambda tree: "time_us" in tree, "when recordings were made")]


def not_shown(tree):
    """Returns sentences about fields that an earlier library left out of the snapshot."""
    return [f"The snapshot has no '{field}', because an earlier library wrote it: {what} cannot be shown."
            for field, has, what in _LATER if not has(tree)]


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
