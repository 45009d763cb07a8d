"""The tree as rows of a graph: an only child stays in the column of its parent, a fork opens new columns."""

import collections
import dataclasses


@dataclasses.dataclass
class Row:
    node: dict
    column: int          # number of forks above
    is_branch: bool    # one of several children
    follows: bool      # the only child
    leads: bool        # has children
    through: list      # columns that pass on the left, to branches further down
    subtree: int = 0   # rows below that descend from it; they come next


def children_of(tree):
    children = collections.defaultdict(list)
    for node in sorted(tree["nodes"], key=lambda node: node["id"]):
        children[node["parent"]].append(node)
    return children


def rows(tree):
    """Rows from top to bottom, parents first. Without recursion: a tree may be deep."""
    children = children_of(tree)
    found, stack, open_rows = [], [], []

    def push(nodes, column, through, is_branch):
        for i, node in reversed(list(enumerate(nodes))):
            passing = through + [column - 1] if is_branch and i + 1 < len(nodes) else through
            stack.append((node, column, passing, is_branch))

    push(children[0], 0, [], False)
    while stack:
        node, column, through, is_branch = stack.pop()
        below = children[node["id"]]
        follows = not is_branch and node["parent"] != 0
        found.append(Row(node, column, is_branch, follows, bool(below), through))
        forks = len(below) > 1
        push(below, column + forks, through, forks)
    for i, row in reversed(list(enumerate(found))):
        while open_rows and found[open_rows[-1]].node["parent"] == row.node["id"]:
            row.subtree += 1 + found[open_rows.pop()].subtree
        open_rows.append(i)
    return found


def shared(node, nodes_by_id):
    """Nodes that followed this node but were recorded elsewhere."""
    followers = [nodes_by_id[i] for i in node["followed_by"] if i != 0]
    return [other for other in followers if other["parent"] != node["id"]]
