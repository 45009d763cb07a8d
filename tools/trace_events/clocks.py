"""Compares the clocks of ranks by events that all ranks of a group have together.

Events have the wall clock of their host. A warm-up or a recording ends with a vote, which no rank leaves before all
have come to it. So the k-th of them ends on all ranks at the same instant, except for the time of a message, and the
median of the differences is the offset of the clocks.
"""

import statistics

TOGETHER = ("warm_up", "record")


def _votes(contexts):
    """Returns {(context, event, k): time} of the events that a rank had together with the
    others."""
    times = {}
    for index, context in enumerate(contexts):
        counts = dict.fromkeys(TOGETHER, 0)
        for event in context.events:
            kind = event["event"]
            if kind in counts:
                times[index, kind, counts[kind]] = event["time_us"]
                counts[kind] += 1
    return times


def offsets(processes):
    """Returns {index of a process: (microseconds by which it is ahead of the first of its group,
    votes)}.

    Several ranks of one process have one clock: the first of them represents all.
    """
    found, first = {}, {}
    for index, process in enumerate(processes):
        groups = {(context.rank, context.ranks) for context in process.contexts
                  if context.rank is not None}
        for rank, ranks in sorted(groups)[:1]:
            votes = _votes([one for one in process.contexts if (one.rank, one.ranks) == (rank, ranks)])
            known = first.setdefault(ranks, votes)
            common = votes.keys() & known.keys()
            if known is not votes and common:
                found[index] = (statistics.median(votes[key] - known[key] for key in common),
                                len(common))
    return found
