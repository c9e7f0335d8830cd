"""A round's certificate as values: what was measured, and whether it was promised.

Numbers only; sentences are made from them where they are shown. It is plain data that survives
JSON, rounded to six places, so that the same bytes certify alike on every machine.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

# The newest version, and that of certificates without any of the lines that came since.
VERSION, VERSION_BEFORE = 6, 3
# A certificate of any pool stays small: rows of tenants, and the ids that a finding names.
MAX_ROWS = 200
MAX_NAMED = 20
MAX_OVERCLAIMS = 50


class Property(StrEnum):
    """What a certificate has a line for, in the order of the lines.

    That of trades is there where quota is traded, or the policy may trade it; that of individual
    rationality where it is promised; that of measured speeds where the policy reads speeds, and any
    were measured.
    """

    CAPACITY = "capacity"  # no node gives more GPUs than it has
    GANG = "gang"  # no job holds a part of its GPUs
    SINGLE_HOLD = "single_hold"  # no job holds two leases
    LONG_TERM_ORDER = "long_term_order"  # who received least for its due is served first
    QUOTA_GUARANTEE = "quota_guarantee"  # no owed job waits while room could be made for it
    TRADES = "trades"  # trades of quota keep their rate, and leave neither side worse
    INDIVIDUAL_RATIONALITY = "individual_rationality"  # nobody borrows above its job's worth
    ENVY_FREE = "envy_free"  # nobody would do better with another's share, by weight
    SHARING_INCENTIVE = "sharing_incentive"  # nobody would do better with its part of each type
    EQUAL_THROUGHPUT = "equal_throughput"  # all do the same per unit of weight
    PARETO = "pareto"  # nobody could do better without another doing worse
    OVERSTATING = "overstating"  # nobody gains by reporting faster speeds
    UNDERSTATING = "understating"  # nobody gains by reporting slower speeds
    MEASURED_SPEEDS = "measured_speeds"  # what was measured counts, whatever was declared


# Lines that came later, with the version of the certificates that have them. Bytes of those
# without stay. Version 6 has an order that is compared with all who could have been served, and
# misreports of several GPU types and factors (`CertificateItem.since`).
SINCE = {Property.INDIVIDUAL_RATIONALITY: 4, Property.MEASURED_SPEEDS: 5}


class Verdict(StrEnum):
    """What came of a property."""

    HOLDS = "holds"
    # It holds for those to whom it is promised, of the others not for all; or there is something
    # to say beside it, as that somebody declared more than was measured.
    NOTED = "noted"
    VIOLATED = "violated"
    NOT_PROMISED = "not_promised"  # measured where that is cheap, and no promise is broken
    NOT_APPLICABLE = "not_applicable"  # there is nothing here that it could be asked of
    UNKNOWN = "unknown"  # it was promised, and could not be measured: `why` says so


class Basis(StrEnum):
    """What was measured."""

    LEASES = "leases"  # leases after the round, in whole GPUs
    IDEALS = "ideals"  # the fractions that the policy's program answered, before rounding
    SUMS = "sums"  # GPU-time received and due, at each pick of the round
    TRADES = "trades"  # the records of trades, and the profiles that they were made by
    TERMS = "terms"  # leases after the round, and when what they borrow is over
    VALUES = "values"  # what jobs say that they are worth, and the prices posted for the round
    PROBES = "probes"  # the policy asked again with other speeds
    SPEEDS = "speeds"  # what was declared of job types, and what their jobs reported


class CertificateItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a certificate.

    `checked`: how many rows, pairs, leases or misreports were looked at; `count` how many break
    it, `broken` the first of their ids (tenants; of capacity, gangs and holds: nodes or jobs).
    `worst` is the number that decides (its meaning and unit depend on the property, see
    docs/fairness.md), of `tenant`, against `other`. `in_gpus` is the same measured on whole GPUs.
    `total` is a sum over the pool. `tolerance`: what is smaller is noise. Of misreports: `of` so
    many were `checked`, the best of them scales the speed of `gpu_type` ("": of all but the
    slowest) by `factor`; `bound`: by what it is known that none gains, tried or not.
    """

    name: Property
    verdict: Verdict
    basis: Basis
    checked: int = 0
    count: int = 0
    broken: tuple[int, ...] = ()
    worst: float | None = None
    tenant: int | None = None
    other: int | None = None
    in_gpus: float | None = None
    total: float | None = None
    tolerance: float | None = None
    why: str = ""
    of: int = 0
    gpu_type: str = ""
    factor: float | None = None
    bound: str = ""

    @property
    def since(self) -> int:
        """The version of the certificates that came with such a line."""
        if self.name is Property.LONG_TERM_ORDER and self.verdict is not Verdict.NOT_PROMISED:
            return VERSION  # before it compared picks with each other alone
        return VERSION if self.of else SINCE.get(self.name, VERSION_BEFORE)


class JobTypeResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one job type of a tenant does with its share.

    In GPUs of the slowest type: `ideal` with its share before rounding (None: the policy has no
    such), `held` with the GPUs held after the round, `alone` with its weight's part of every
    type, `best_other` with the best of the others' shares by weight, that of `other`. The last
    two are of the shares that the promise is about: ideal ones where there are any. `capped`: it
    has all GPUs that it can use.
    """

    tenant: int
    profile: int
    weight: float
    held: float
    alone: float
    ideal: float | None = None
    best_other: float | None = None
    other: int | None = None
    capped: bool = False


class Overclaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job type that was declared faster on a GPU type than it was measured.

    Both speeds in thousandths of that on the slowest declared of the measured types, `excess_milli`
    how far the declared one is above, and `tolerance_milli` what the spreads explain of it, in
    thousandths. `reports` since the average of this type began.
    """

    tenant: int
    profile: int
    gpu_type: str
    declared_milli: int
    measured_milli: int
    excess_milli: int
    tolerance_milli: int
    reports: int


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All lines of a round. `failure`: why it could not be certified, else empty.

    `violated` repeats the names of findings that are, for those who count. `left_out`: rows
    beyond the limit, `overclaims_left_out` the same of overclaims; these are sorted, the largest
    first.
    """

    version: int
    violated: tuple[Property, ...]
    findings: tuple[CertificateItem, ...] = ()
    rows: tuple[JobTypeResult, ...] = ()
    left_out: int = 0
    failure: str = ""
    overclaims: tuple[Overclaim, ...] = ()
    overclaims_left_out: int = 0


def certificate(
    findings: tuple[CertificateItem, ...],
    rows: tuple[JobTypeResult, ...] = (),
    failure: str = "",
    overclaims: tuple[Overclaim, ...] = (),
) -> Certificate:
    """Return a certificate of these lines, within its size."""
    return Certificate(
        version=max((row.since for row in findings), default=VERSION_BEFORE),
        violated=tuple(row.name for row in findings if row.verdict is Verdict.VIOLATED),
        findings=findings,
        rows=rows[:MAX_ROWS],
        left_out=max(0, len(rows) - MAX_ROWS),
        failure=failure,
        overclaims=overclaims[:MAX_OVERCLAIMS],
        overclaims_left_out=max(0, len(overclaims) - MAX_OVERCLAIMS),
    )


def plain(value: Certificate) -> dict[str, object]:
    """Return a certificate as JSON holds it."""
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(value))
    return fields


def read(data: object) -> Certificate:
    """Read one back.

    Raises:
        msgspec.ValidationError: it is of another version.
    """
    return msgspec.convert(data, Certificate)


def figure(value: float) -> float:
    """Return a number as certificates keep it: six places, and no minus zero."""
    return round(float(value), 6) + 0.0
