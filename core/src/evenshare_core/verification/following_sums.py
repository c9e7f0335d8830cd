"""Check that a round starts with the GPU-time sums that the previous round left. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from evenshare_core.domain.snapshot import ClaimService, ClassService, JobService, Service
from evenshare_core.verification.following_ids import Pairing, RoundText
from evenshare_core.verification.following_texts import (
    FIELD,
    MARKS,
    MORE_ROWS,
    OTHER_ROWS,
    OTHER_TIME,
    SUMS_DIFFER,
    SUMS_MISSING,
    SUMS_NEW,
    SUMS_OF_CLASS,
    SUMS_OF_JOB,
    SUMS_OF_TENANT,
    SUMS_ORDER,
    capital,
)

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
        yield OTHER_TIME.format(at=f"{taken.at_us:,}", before=text.before, was=f"{left.at_us:,}")
    if ids is None:
        yield OTHER_ROWS.format(
            claims=len(taken.claims),
            jobs=len(taken.jobs),
            before=text.before,
            claims_before=len(left.claims),
            jobs_before=len(left.jobs),
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
        lambda row: SUMS_OF_TENANT.format(tenant=text.tenant(row.tenant), gpu_type=row.gpu_type),
    )
    yield from _differing(
        classes,
        taken.classes,
        text,
        lambda row: (row.tenant, row.gpu_type, row.demand, row.weight),
        lambda row: SUMS_OF_CLASS.format(
            tenant=text.tenant(row.tenant),
            demand=row.demand,
            gpu_type=row.gpu_type,
            weight=row.weight,
        ),
    )
    yield from _differing(
        jobs,
        taken.jobs,
        text,
        lambda row: (row.job,),
        lambda row: SUMS_OF_JOB.format(job=text.job(row.job)),
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
            differences.append(SUMS_MISSING.format(sums=capital(name(was)), before=text.before))
        elif was is None and now is not None:
            differences.append(SUMS_NEW.format(sums=capital(name(now)), before=text.before))
        elif was is not None and now is not None:
            differences.append(
                SUMS_DIFFER.format(
                    sums=capital(name(now)), before=text.before, fields=_fields(was, now)
                )
            )
    if not differences:
        differences = [SUMS_ORDER.format(before=text.before)]
    yield from differences[:NAMED]
    if len(differences) > NAMED:
        yield MORE_ROWS.format(count=len(differences) - NAMED)


def _fields(was: RowT, now: RowT) -> str:
    return ", ".join(
        FIELD.format(field=field, now=_value(getattr(now, field)), was=_value(getattr(was, field)))
        for field in was.__struct_fields__
        if getattr(was, field) != getattr(now, field)
    )


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return MARKS.format(count=len(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
