"""Foreign memory: memory that recordings refer to and that is not known to live as long."""

import collections

import units
from markup import Number, code, link, section, table, text

_INTRO = ("Kernels of these recordings have addresses of memory that is neither an input nor the context's "
          "own, nor declared. If it is freed or moves, replays go on to use it. Pass it as an input, call "
          "<code>data()</code> inside the step function, or declare it.")


def render(tree):
    if not any("audit" in node for node in tree["nodes"]):
        return ""
    uses, unseen = collections.defaultdict(list), collections.Counter()
    for node in tree["nodes"]:
        audit = node.get("audit", {"foreign": [], "unseen": []})
        for item in audit["foreign"]:
            memory = (item["memory_address"] or item["address"], item["memory_bytes"])
            uses[memory, item["kernel"], item["place"], item["what"]].append(node)
        for item in audit["unseen"]:
            unseen[item["what"]] += item["nodes"]
    rows = [[code(units.address(memory[0])),
             Number(memory[1], units.size(memory[1]) if memory[1] else "unknown to any device"),
             text(kernel), text(place), text(what), ", ".join(link(node) for node in nodes[:8])
             + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")]
            for (memory, kernel, place, what), nodes in
            sorted(uses.items(), key=lambda use: (-len(use[1]), use[0]))]
    heads = ["Memory", "Size", "Kernel", "Where", "What", "Recordings"]
    body = table("Foreign pointers", heads, rows, sorts=True) if rows else \
        "<p>No recording refers to foreign memory, as far as the audit sees.</p>"
    if unseen:
        body += table("What the audit could not look into", ["What", "Nodes"],
                      [[text(what), Number(nodes, units.count(nodes))] for what, nodes in unseen.most_common()])
    return section("Foreign pointers", body, _INTRO if rows else "")
