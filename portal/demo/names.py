"""Names for the demo's tenants that people can read: ours, and no word of the trace's.

Philly's virtual clusters are known by hashes alone. A name says nothing of what a cluster did: the
words go by the alphabet, the largest tenant first, and the hash stays beside it.
"""

from __future__ import annotations

FIRST_NAMES = (
    "Aspen", "Birch", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Heron",
    "Iris", "Juniper", "Kelp", "Larch", "Maple", "Nettle", "Osprey", "Pine",
)  # fmt: skip # a table

# The pool whose jobs say what they are worth; the front page's tour leads there.
BIDDING_POOL = "market"
# The pool whose jobs have deadlines.
DEADLINE_POOL = "deadlines"


def readable_name(place: int, trace_name: str) -> tuple[str, str]:
    """Return the name and the initials of the tenant at a place in the order of size, from 0.

    Past the words there is the hash alone.
    """
    if place >= len(FIRST_NAMES):
        return trace_name, trace_name[:2].upper()
    word = FIRST_NAMES[place]
    return f"{word} ({trace_name})", word[:2].upper()


# The pool whose jobs run in a Slurm cluster, where `make run-slurm` has started one.
SLURM_POOL = "slurm"
