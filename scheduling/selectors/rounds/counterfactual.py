"""Counterfactuals: what a job type would have got in a stored round for other reported speeds.

Only the viewer's own job types can be tried, and only in rounds whose bytes are kept. The policy
that decided the round decides again for each report. The resulting share is valued by the true
speeds at the round. All misreports of `evenshare_core.fairness.misreports` are tried, and the best
is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.misreports import (
    MisreportResult,
    Speeds,
    honest_result,
    misreport_result,
    misreports_of,
    profile_of,
)
from evenshare_core.policies.base import promises, round_ideals
from evenshare_core.policies.registry import missing_text
from scheduling.models import Profile, Round
from scheduling.selectors.rounds.stored import (
    DamagedRoundError,
    ReplayError,
    decode_round,
    round_bytes,
    row_damages,
)
from scheduling.selectors.stored_texts import TOO_MANY_JOBS
from scheduling.selectors.visibility import Visibility, VisibleTenant

# Each report solves the policy's program; larger rounds would delay the page.
MAX_JOBS = 2000


class TooLargeError(Exception):
    """The round has too many jobs to be decided again for a page; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class OwnProfile:
    """A job type of the viewer with jobs in the round. `source` as in `models.Profile.Source`."""

    id: int
    name: str
    tenant: VisibleTenant
    source: str


@dataclass(frozen=True, slots=True)
class ReportTrial:
    """A report: its speeds in thousandths, the resulting shares, and their true value.

    `factor` is None for the true speeds and for the viewer's own input. Otherwise it multiplies the
    speed on `gpu_type`, or on all types but the slowest if `gpu_type` is "".
    """

    factor: float | None
    gpu_type: str
    speeds: Speeds
    outcome: MisreportResult
    gain: float


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The viewer's job types in a round and, for the selected one, the true report and the trials.

    `noise`: smaller gains do not count. `promised`: the policy promises for this round that
    overstating does not pay. `bound`: the proof of this promise, independent of the trials.
    """

    profiles: tuple[OwnProfile, ...]
    chosen: OwnProfile | None
    looks_at_speeds: bool
    gpu_types: tuple[str, ...]
    truth: ReportTrial | None
    tried: tuple[ReportTrial, ...]
    noise: float
    promised: bool
    bound: str = ""

    @property
    def shown(self) -> tuple[ReportTrial, ...]:
        """The viewer's own report, and the best trial of each way to scale the speeds."""
        best: dict[tuple[str, bool], ReportTrial] = {}
        own = []
        for one in self.tried:
            if one.factor is None:
                own.append(one)
                continue
            way = (one.gpu_type, one.factor > 1)
            if way not in best or one.gain > best[way].gain:
                best[way] = one
        return (*own, *best.values())

    @property
    def best(self) -> ReportTrial | None:
        """The trial with the largest gain, or None if no report gains."""
        gains = [one for one in self.tried if one.gain > self.noise]
        return max(gains, key=lambda one: one.gain, default=None)


def read_counterfactual(
    round_: Round, visibility: Visibility, *, profile: int | None = None, speeds: Mapping[str, int]
) -> Counterfactual:
    """Return the results of other reports of one of the viewer's job types. At most three queries.

    `profile`: the first job type if None. `speeds`: thousandths by GPU type to try in addition to
    the factors; types on which the job type does not run are ignored.

    Raises:
        ReplayError: the bytes are damaged or no longer kept, or the policy is not installed.
        TooLargeError: the round has too many jobs.
    """
    if damages := row_damages(round_):
        raise DamagedRoundError(round_.number, damages)
    if missing := missing_text(round_.policy):
        raise ReplayError(missing)
    snapshot, decision = decode_round(round_, round_bytes(round_))
    if len(snapshot.jobs) > MAX_JOBS:
        raise TooLargeError(TOO_MANY_JOBS.format(count=len(snapshot.jobs), most=MAX_JOBS))
    measured = Measured(snapshot, decision, frozenset())
    rows = measured.judged.rows
    mine = [key for key in rows if key[1] and visibility.jobs_of(key[0])]
    profiles = _profiles(mine, visibility)
    chosen = next((one for one in profiles if one.id == profile), None) if profile else None
    chosen = chosen or next(iter(profiles), None)
    if chosen is None or not measured.has_ideals:
        return Counterfactual(profiles, chosen, measured.has_ideals, (), None, (), 0.0, False)
    place = rows.index((chosen.tenant.id, chosen.id))
    truth, tried = _tried(measured, place, speeds)
    promised = promises(snapshot, measured)
    return Counterfactual(
        profiles=profiles,
        chosen=chosen,
        looks_at_speeds=True,
        gpu_types=tuple(name for name in measured.judged.gpu_types if name in truth.speeds),
        truth=truth,
        tried=tried,
        noise=2 * float(measured.judged.noise[place]),
        promised=Property.OVERSTATING in promised.properties,
        bound=promised.proofs.get(Property.OVERSTATING, ""),
    )


def _profiles(keys: list[tuple[int, int]], visibility: Visibility) -> tuple[OwnProfile, ...]:
    """Return the viewer's job types by name; a removed one is named by its number."""
    ids = [profile for _, profile in keys]
    known = {row.pk: row for row in Profile.objects.filter(id__in=ids)} if ids else {}
    profiles = [
        OwnProfile(
            id=profile,
            name=known[profile].name if profile in known else f"job type {profile}",
            tenant=seen,
            source=known[profile].source if profile in known else "",
        )
        for tenant, profile in keys
        if (seen := visibility.of(tenant))
    ]
    # The viewer's own job types precede those that are visible only by the operator's role.
    return tuple(
        sorted(profiles, key=lambda row: (not row.tenant.you, row.tenant.number, row.name))
    )


def _tried(
    measured: Measured, place: int, speeds: Mapping[str, int]
) -> tuple[ReportTrial, tuple[ReportTrial, ...]]:
    profile = profile_of(measured.snapshot, measured.judged.rows[place][1])
    true_speeds = {name: speed for name, speed in profile.speedups if speed}
    honest = honest_result(measured, place)
    truth = ReportTrial(None, "", true_speeds, honest, 0.0)
    reports: list[tuple[float | None, str, Speeds]] = []
    own = {name: speeds.get(name, speed) for name, speed in true_speeds.items()}
    if own != true_speeds:
        reports.append((None, "", own))
    over, under = misreports_of(profile, measured.judged.gpu_types)
    for one in (*over, *under):
        report = {name: speed for name, speed in one.speeds if speed}
        reports.append((one.factor, one.gpu_type, report))
    tried = []
    for factor, gpu_type, report in reports:
        result = misreport_result(measured, place, report, round_ideals)
        gain = result.throughput - honest.throughput
        tried.append(ReportTrial(factor, gpu_type, report, result, gain))
    return truth, tuple(tried)
