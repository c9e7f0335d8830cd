"""A pool in one round of UniSched: nodes by GPU type, and leases with their ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenshare_core.deadlines.options import Cells, free_cells
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.estimation.remaining import work_left
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.shared.estimates import whole_us
from evenshare_core.policies.unisched.demands import Remaining, phi_of, whole_leases
from evenshare_core.policies.unisched.memory import UniSchedMemory
from evenshare_core.policies.unisched.options import UniSchedOptions
from evenshare_core.units import ONE_MILLI, SECOND_US

# the maximum number of slots that are counted separately; after them, free cells are constant
MOST_SLOTS = 12_096


FORMER = frozenset({"3"})  # the version whose rounds HiGHS solved


@dataclass(eq=False)
class DeadlinePool:
    """The inputs of a round. `kept`: by job, the leases that continue or are renewed first."""

    snapshot: Snapshot
    options: UniSchedOptions
    memory: UniSchedMemory
    kept: dict[int, Lease] = field(init=False)
    ended: dict[int, Lease] = field(init=False)  # leases, by job, that compete for another term
    renewed: list[Lease] = field(init=False)  # leases in the middle of an SLO lease

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.at_us, self.slot_us = snapshot.at_us, snapshot.lease_us
        self.lease_us = snapshot.lease_us * self.options.lease_multiple
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.sums = {row.job: row for row in snapshot.service.jobs}
        self.estimates = {row.id: row for row in snapshot.estimates}
        self.profiles = {row.id: row for row in snapshot.profiles}
        self.nodes: dict[str, dict[int, int]] = {}
        for node in snapshot.nodes:
            self.nodes.setdefault(node.gpu_type, {})[node.id] = node.gpus
        self.capacity = {name: sum(rows.values()) for name, rows in self.nodes.items()}
        for job in snapshot.jobs:
            if job.id not in self.sums:
                raise ValueError(f"job {job.id} is in the snapshot, but no change made it active")
        self.kept, self.ended, self.renewed = {}, {}, []
        for lease in snapshot.leases:
            if not lease.ends_by(self.at_us):
                self.kept[lease.job] = lease
            elif self._goes_on(lease):
                self.renewed.append(lease)
                self.kept[lease.job] = lease
            elif lease.job in self.jobs:
                self.ended[lease.job] = lease

    @property
    def is_former(self) -> bool:
        """Return whether a former version decided the round, with HiGHS."""
        return self.snapshot.policy_version in FORMER

    def _goes_on(self, lease: Lease) -> bool:
        """Return whether the lease is a term of an SLO lease that continues, on GPUs that exist."""
        answer = self.memory.answers.get(lease.job)
        if answer is None or lease.job not in self.jobs:
            return False
        # Within half a slot of the SLO lease's end, another term would outlast the SLO lease.
        if answer.until_us - self.at_us <= max(self.slot_us // 2, 1):
            return False
        nodes = self.nodes.get(lease.gpu_type, {})
        return all(nodes.get(node, 0) >= gpus for node, gpus in lease.placement)

    def spread_milli(self, job: int) -> int:
        """Return the speed of a job on several nodes relative to one node, in thousandths."""
        row = self.estimates.get(job)
        return row.spread_milli if row and self.options.use_estimator else ONE_MILLI

    def home(self, job: Job) -> str:
        """Return the GPU type on which a job is planned: its lease's type, or the claimed type."""
        lease = self.kept.get(job.id) or self.ended.get(job.id)
        if lease is not None:
            return lease.gpu_type
        types = self.types(job)
        claimed = self.sums[job.id].gpu_type
        return claimed if claimed in types or not types else types[0]

    def types(self, job: Job) -> tuple[str, ...]:
        """Return the GPU types on which a job could run in an empty pool, sorted by name."""
        profile = self.profiles.get(job.profile)
        return tuple(
            name
            for name in accepted_types(job, self.capacity)
            if job.gpus <= self.capacity[name] and (not profile or profile.speed_milli(name))
        )

    def whole_us(self, job: Job, gpu_type: str) -> int:
        """Return the duration of a job on a type from start to end, in us."""
        whole = whole_us(job, self.options.unknown_s * SECOND_US)
        profile = self.profiles.get(job.profile)
        speed = profile.speed_milli(gpu_type) if profile else ONE_MILLI
        return max(1, -(-whole * ONE_MILLI // speed)) if speed else whole

    def remaining(self, job: Job, gpu_type: str) -> Remaining:
        """Return the time that a job still needs, including the time lost on several nodes."""
        whole = self.whole_us(job, gpu_type)
        sums: JobService = self.sums[job.id]
        answer = self.memory.answers.get(job.id)
        ran = job_received(sums, self.at_us) // job.gpus - (answer.lost_us if answer else 0)
        estimate = self.estimates.get(job.id)
        error_milli = estimate.error_milli if estimate and job.estimate_us is not None else 0
        left, deviation = work_left(whole, max(0, ran), error_milli)
        left -= min(0, ran)  # If `ran` is negative, restarts took longer than the job ran.
        until = self.holds_until(job.id)
        lease = self.kept.get(job.id)
        phi = phi_of(lease, self.spread_milli(job.id)) if lease else ONE_MILLI
        later = max(0, left - (until - self.at_us) * phi // ONE_MILLI)
        return Remaining(whole, left, later, until, ran >= whole, deviation)

    def holds_until(self, job: int) -> int:
        """Return until when the job keeps its current GPUs, in us."""
        lease = self.kept.get(job)
        if lease is None:
            return self.at_us
        until = max(self.at_us, lease.expires_us, lease.protected_until_us)
        answer = self.memory.answers.get(job)
        return max(until, answer.until_us) if answer else until

    def free_gpus(self, gpu_type: str, after_us: int = 0) -> dict[int, int]:
        """Return, by node, the GPUs that no lease holds `after_us` after the round."""
        free = dict(self.nodes.get(gpu_type, {}))
        for job, lease in self.kept.items():
            if lease.gpu_type == gpu_type and self._holds_at(job, after_us):
                for node, gpus in lease.placement:
                    if node in free:
                        free[node] -= gpus
        return {node: max(0, gpus) for node, gpus in free.items()}

    def _holds_at(self, job: int, after_us: int) -> bool:
        return self.holds_until(job) > self.at_us + after_us or (after_us == 0 and job in self.kept)

    def free_slots(self, gpu_type: str) -> list[Cells]:
        """Return the free cells by slot. The last row also applies to all later slots."""
        held = {
            whole_leases(self.holds_until(job) - self.at_us, self.slot_us)
            for job, lease in self.kept.items()
            if lease.gpu_type == gpu_type
        }
        rows: list[Cells] = []
        for begin in sorted({0, *(max(1, slot) for slot in held)}):
            begin = min(begin, MOST_SLOTS)  # noqa: PLW2901 - what is later counts as held until then
            rows += rows[-1:] * (begin - len(rows))
            if len(rows) == begin:
                rows.append(free_cells(self.free_gpus(gpu_type, begin * self.slot_us).values()))
        return rows

    def held(self, gpu_type: str) -> Mapping[int, dict[int, int]]:
        """Return, for each job whose lease ends, the lease's GPUs by node."""
        return {
            job: dict(lease.placement)
            for job, lease in self.ended.items()
            if lease.gpu_type == gpu_type
        }

    def update_losses(self) -> None:
        """Add the time lost on several nodes since the last round."""
        for job, answer in self.memory.answers.items():
            lease = self.kept.get(job) or self.ended.get(job)
            if lease is not None and len(lease.placement) > 1:
                ran_us = max(0, self.at_us - max(answer.seen_us, lease.started_us))
                phi = phi_of(lease, self.spread_milli(job))
                answer.lost_us += ran_us * (ONE_MILLI - phi) // ONE_MILLI
            answer.seen_us = self.at_us
