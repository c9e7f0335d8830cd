"""Check that a round starts with the GPU-time sums that the previous round left. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from evenshare_core.domain.snapshot import ClaimService, ClassService, JobService, Service
from evenshare_core.verification.following_ids import Pairing, RoundText

RowT = TypeVar("RowT", ClaimService, ClassService, JobService)

# The maximum number of rows of one kind that a message names; the others are only counted.
NAMED = 5


def sum_breaks(
    left: Service, taken: Service, ids: Pairing | None, text: RoundText
) -> Iterator[str]:
    """Yield the sums that differ from those of the previous round, row by row.

    `ids` is None if rows cannot be paired, because their numbers differ.
    """
    if left.at_us != taken.at_us:
        yield (
            f"The sums are as of {taken.at_us:,} µs, and {text.before} left them"
            f" at {left.at_us:,} µs."
        )
    if ids is None:
        yield (
            f"The sums have rows of {len(taken.claims)} claims and {len(taken.jobs)} jobs, and"
            f" {text.before} left {len(left.claims)} and {len(left.jobs)}."
        )
        return
    if ids.exact and left == taken:
        return
    tenant, job = ids.tenant, ids.job
    claims = [replace(row, tenant=tenant(row.tenant)) for row in left.claims]
    classes = [replace(row, tenant=tenant(row.tenant)) for row in left.classes]
    jobs = [replace(row, tenant=tenant(row.tenant), job=job(row.job)) for row in left.jobs]
    yield from _differing(
        claims,
        taken.claims,
        text,
        lambda row: (row.tenant, row.gpu_type),
        lambda row: f"The sums of {text.tenant(row.tenant)} for {row.gpu_type}",
    )
    yield from _differing(
        classes,
        taken.classes,
        text,
        lambda row: (row.tenant, row.gpu_type, row.demand, row.weight),
        lambda row: (
            f"The sums of jobs of {text.tenant(row.tenant)} that ask for {row.demand}"
            f" {row.gpu_type} with weight {row.weight}"
        ),
    )
    yield from _differing(
        jobs,
        taken.jobs,
        text,
        lambda row: (row.job,),
        lambda row: f"The sums of {text.job(row.job)}",
    )


def _differing(
    left: Sequence[RowT],
    taken: Sequence[RowT],
    text: RoundText,
    key: Callable[[RowT], tuple[object, ...]],
    name: Callable[[RowT], str],
) -> Iterator[str]:
    if list(left) == list(taken):
        return
    were: dict[tuple[object, ...], RowT] = {key(row): row for row in left}
    are: dict[tuple[object, ...], RowT] = {key(row): row for row in taken}
    differences = []
    for one in (*were, *(one for one in are if one not in were)):
        was, now = were.get(one), are.get(one)
        if was == now:
            continue
        if now is None and was is not None:
            differences.append(f"{name(was)} are missing, and {text.before} left some.")
        elif was is None and now is not None:
            differences.append(f"{name(now)} are new, and {text.before} left none.")
        elif was is not None and now is not None:
            differences.append(
                f"{name(now)} are not those that {text.before} left: {_fields(was, now)}."
            )
    if not differences:
        differences = [f"The order of the sums differs from the order that {text.before} left."]
    yield from differences[:NAMED]
    if len(differences) > NAMED:
        yield f"{len(differences) - NAMED} more rows like the last one differ."


def _fields(was: RowT, now: RowT) -> str:
    return ", ".join(
        f"{field} {_value(getattr(now, field))} instead of {_value(getattr(was, field))}"
        for field in was.__struct_fields__
        if getattr(was, field) != getattr(now, field)
    )


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} marks"
    return f"{value:,}" if isinstance(value, int) else str(value)
