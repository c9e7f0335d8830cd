"""Readable names of the demo's tenants, which are not in the trace.

Philly's virtual clusters are known only by hashes. The names are invented, in alphabetical order,
the largest tenant first; the hash follows in brackets.
"""

FIRST_NAMES = (
    "Aspen", "Birch", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Heron",
    "Iris", "Juniper", "Kelp", "Larch", "Maple", "Nettle", "Osprey", "Pine",
)  # fmt: skip # a table

# The pool whose jobs declare their value; the front page's tour leads there.
BIDDING_POOL = "market"
# The pool whose jobs have deadlines.
DEADLINE_POOL = "deadlines"


def readable_name(place: int, trace_name: str) -> tuple[str, str]:
    """Return name and initials of the tenant at a place in the order of size, from 0.

    After the last name, the hash is the name.
    """
    if place >= len(FIRST_NAMES):
        return trace_name, trace_name[:2].upper()
    word = FIRST_NAMES[place]
    return f"{word} ({trace_name})", word[:2].upper()


# The pool of jobs in a Slurm cluster, if `make run-slurm` has started one.
SLURM_POOL = "slurm"
