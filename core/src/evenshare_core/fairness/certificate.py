"""A round's certificate as values: the measurements, and whether the properties were promised.

It contains only numbers; sentences are made where they are shown. It is plain data that survives
JSON, rounded to six places, so that the same bytes give the same certificate on every machine.
"""

from enum import StrEnum

import msgspec

# The newest version, and the version of a certificate that has no line added later.
VERSION, VERSION_BEFORE = 7, 3
# The version that first checked the order against all jobs that could have been served, and tried
# misreports of several GPU types and factors.
SEARCH_VERSION = 6
# Limits on a certificate's size: its rows, and the ids that a line names.
MAX_ROWS = 200
MAX_NAMED = 20
MAX_OVERCLAIMS = 50


class Property(StrEnum):
    """The properties with a line in a certificate, in the order of the lines.

    Four lines are optional. The line of trades exists if quota is traded, or if the policy may
    trade it. The lines of promised starts and of individual rationality exist if they are promised.
    The line of measured speeds exists if the policy reads speeds and any were measured.
    """

    CAPACITY = "capacity"  # no node gives more GPUs than it has
    GANG = "gang"  # no job holds a part of its GPUs
    SINGLE_HOLD = "single_hold"  # no job holds two leases
    # the claim with the least received over deserved is served first
    LONG_TERM_ORDER = "long_term_order"
    # no job that is owed GPUs waits while room could be made for it
    QUOTA_GUARANTEE = "quota_guarantee"
    PROMISED_STARTS = "promised_starts"  # no promise of a start was broken
    TRADES = "trades"  # trades of quota keep their rate, and neither side loses by them
    INDIVIDUAL_RATIONALITY = "individual_rationality"  # no tenant borrows above its job's value
    ENVY_FREE = "envy_free"  # by weight, no row would gain throughput with another row's share
    # no row would have more throughput with its weight's part of each GPU type
    SHARING_INCENTIVE = "sharing_incentive"
    EQUAL_THROUGHPUT = "equal_throughput"  # all rows have the same throughput per unit of weight
    PARETO = "pareto"  # no row could gain throughput without a loss to another row
    OVERSTATING = "overstating"  # no row gains by reporting faster speeds
    UNDERSTATING = "understating"  # no row gains by reporting slower speeds
    MEASURED_SPEEDS = "measured_speeds"  # the round uses measured speeds, not declared ones


# Lines added later, with the version that introduced them. Certificates without such a line keep
# their bytes (`CertificateItem.since`).
SINCE = {
    Property.INDIVIDUAL_RATIONALITY: 4,
    Property.MEASURED_SPEEDS: 5,
    Property.PROMISED_STARTS: 7,
}


class Verdict(StrEnum):
    """The result for a property."""

    HOLDS = "holds"
    # The property holds only for the rows with the promise; or it has a remark, for example an
    # overclaim.
    NOTED = "noted"
    VIOLATED = "violated"
    NOT_PROMISED = "not_promised"  # nothing was promised; measured only if that is cheap
    NOT_APPLICABLE = "not_applicable"  # nothing in the round to check
    UNKNOWN = "unknown"  # promised, but could not be measured: `why` gives the reason


class Basis(StrEnum):
    """The data that was measured."""

    LEASES = "leases"  # leases after the round, in whole GPUs
    IDEALS = "ideals"  # the fractions of the policy's program, before rounding
    SUMS = "sums"  # GPU-time received and deserved, at each pick of the round
    TRADES = "trades"  # the records of trades, and the profiles behind them
    TERMS = "terms"  # leases after the round, and the ends of their borrowed terms
    VALUES = "values"  # the stated values of jobs, and the round's posted prices
    PROBES = "probes"  # the policy run again with other speeds
    SPEEDS = "speeds"  # the declared speeds of job types, and the times that their jobs reported


class CertificateItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a certificate.

    - `checked`: the number of rows, pairs, leases or misreports that were checked.
    - `count`: how many of them violate the property; `broken` has their first ids (tenants; for
      capacity, gangs and holds: nodes or jobs).
    - `worst`: the number that decides the verdict, of `tenant` and, for a pair, of `other`. Its
      meaning and unit depend on the property, see docs/fairness.md. `in_gpus` is the same number,
      measured on whole GPUs.
    - `total`: a sum over the pool.
    - `tolerance`: smaller numbers are noise.
    - `of`: the number of possible misreports, of which `checked` were tried.
    - `gpu_type`, `factor`: the best misreport multiplies the speed of this type ("": of all types
      but the slowest) by the factor.
    - `bound`: the proof that no misreport gains, tried or not.
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
        """The version of certificates that introduced this line."""
        if self.name is Property.LONG_TERM_ORDER and self.verdict is not Verdict.NOT_PROMISED:
            return SEARCH_VERSION  # before, picks were compared only with each other
        return SEARCH_VERSION if self.of else SINCE.get(self.name, VERSION_BEFORE)


class JobTypeResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The throughput of a tenant's job type with its share, in GPUs of the slowest type.

    - `ideal`: with its share before rounding; `None` if the policy has none.
    - `held`: with the GPUs held after the round.
    - `alone`: with its weight's part of every GPU type.
    - `best_other`: with the best share of another row, scaled by weight. `other` is that row.
    - `capped`: whether it has all GPUs that it can use.

    `alone` and `best_other` are about the promised shares: the ideal shares, if the policy has any.
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
    """A job type whose declared speed on a GPU type exceeds the measured one.

    Both speeds are in thousandths of the speed on one type: the slowest declared of the measured
    types. `excess_milli` is the excess of the declared speed, `tolerance_milli` the part of it that
    the spreads explain, both in thousandths. `reports` counts the reports since the average of this
    type started.
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
    """All lines of a round. `failure` is the reason why it could not be certified, else empty.

    `violated` repeats the names of violated lines, for counting. `left_out` and
    `overclaims_left_out` count the rows and overclaims that exceed the size limit. Overclaims are
    sorted, the largest first.
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
    """Return a certificate of these lines, limited in size."""
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
    """Return a certificate as JSON data."""
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(value))
    return fields


def read(data: object) -> Certificate:
    """Return the certificate of JSON data.

    Raises:
        msgspec.ValidationError: it has another version.
    """
    return msgspec.convert(data, Certificate)


def figure(value: float) -> float:
    """Return a number as certificates store it: six places, and no negative zero."""
    return round(float(value), 6) + 0.0
