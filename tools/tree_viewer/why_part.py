"""The reasons why calls did not replay, and the remedies: the functions without recordings
first."""

import collections

import units
from markup import Number, dot, section, table, text

_INTRO = "Functions without recordings come first: nothing below shows them."
_NO_ADVICE = ("first",)  # the cost of a recording in any case


class _Reason:
    def __init__(self, why, calls, advice):
        self.why, self.calls, self.advice = why, calls, advice


def _reasons(function, nodes):
    """Returns the reasons why calls of the function did not replay, the most frequent first."""
    found = [_Reason(one["text"], one["calls"], one["advice"]) for one in function.get("why", [])]
    of_cause = collections.defaultdict(list)
    for node in nodes:
        cause = node.get("reason")
        if cause and cause not in _NO_ADVICE and node.get("advice"):
            of_cause[cause].append(node)
    for cause, recordings in of_cause.items():
        last = recordings[-1]
        changes = "; ".join(change["text"] for change in last["cause"]["changes"][:1])
        calls = function.get("recording_causes", {}).get(cause, len(recordings))
        found.append(_Reason(f"recorded: {last.get('reason_text', cause)}: {changes}", calls, last["advice"]))
    return sorted(found, key=lambda reason: -reason.calls)


def render(tree):
    nodes_of = collections.defaultdict(list)
    for node in tree["nodes"]:
        nodes_of[node["function_id"]].append(node)
    functions = [(function, _reasons(function, nodes_of[function["id"]])) for function in tree["functions"]]
    functions = [(function, reasons) for function, reasons in functions if reasons]
    functions.sort(key=lambda pair: (bool(nodes_of[pair[0]["id"]]), -sum(reason.calls for reason in pair[1])))
    rows = [[f'<div class="function">{dot(function["id"])}<span>{text(function["name"])}</span></div>',
             Number(reason.calls, f'{units.count(reason.calls)} of {units.count(function["calls"])}'),
             text(reason.why), text(reason.advice)]
            for function, reasons in functions for reason in reasons]
    if not rows:
        return ""
    return section("Why calls did not replay",
                   table("Reasons, and what to change", ["Function", "Calls", "Why", "To change"], rows), _INTRO)
