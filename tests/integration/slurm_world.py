"""Provide a pool on the `slurm` executor; a test creates and ends leases, without rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.test import override_settings

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import (
    OVER,
    Launch,
    Report,
    ReportState,
    Stop,
    lease_token,
    token_job,
)
from scheduling.engine.executors.local_files import read_log
from scheduling.engine.executors.shim.files import lease_folder, read_json
from scheduling.engine.executors.slurm.commands import Slurm, SlurmJob, is_over
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.models import Intent, Job, Lease, LeaseSlot, Node
from tests.factories import Cluster, cluster
from tests.integration.local_world import processes_below
from tests.slurm import number_jobs_anew, own_slurm
from tests.tools import eventually


def make_lab(
    slurm: SlurmCluster, options: Mapping[str, Any] | None = None, **fields: Any
) -> Cluster:
    """Return a pool with the cluster's nodes of its first GPU type, and more `options`."""
    number_jobs_anew()
    first = slurm.nodes[0]
    names = [node.name for node in slurm.nodes if node.gpu_type == first.gpu_type]
    wanted = {"lease_s": 20, "round_s": 2, "grace_s": 20, "policy": "ltgf", **fields}
    own = {"conf": str(slurm.conf), "partition": slurm.partition, **(options or {})}
    lab = cluster(
        {"a": first.gpus * len(names)}, nodes=len(names), gpus=first.gpus, executor="slurm",
        executor_options=own, **wanted,
    )  # fmt: skip
    lab.gpu_type.name = first.gpu_type
    lab.gpu_type.save()
    for node, name in zip(Node.objects.filter(pool=lab.pool).order_by("id"), names, strict=True):
        node.name = name
        node.save()
    return lab


@dataclass
class SlurmWorld:
    """Jobs with a lease each, never on `avoided` nodes; `close` ends all processes."""

    root: Path
    slurm: SlurmCluster
    lab: Cluster = field(init=False)
    executor: SlurmExecutor = field(default_factory=SlurmExecutor)
    avoided: set[str] = field(default_factory=set)
    options: Mapping[str, Any] = field(default_factory=dict)
    _nodes: dict[str, list[tuple[Node, int]]] = field(default_factory=dict)
    _launched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lab = make_lab(self.slurm, self.options)

    @property
    def tools(self) -> Slurm:
        return Slurm(SlurmOptions(conf=str(self.slurm.conf), partition=self.slurm.partition))

    def lease(
        self, *argv: str, gpus: Sequence[int] = (1,), job: Job | None = None, **fields: Any
    ) -> str:
        """Create a job with a lease on `gpus` GPUs of each node, ready to launch."""
        made = job or self.lab.submit("a", sum(gpus), 60, command=list(argv), **fields)
        number = Lease.objects.filter(job=made).count() + 1
        now = read_clock(self.lab.pool.pk).pool_at
        lease = Lease.objects.create(
            pool=self.lab.pool, tenant=made.tenant, job=made, gpu_type=self.lab.gpu_type,
            number=number, state=Lease.State.LAUNCHING, gpus=sum(gpus), placement=[],
            granted_round=1, granted_at=now, expires_at=now, own=sum(gpus), borrowed=0, price=0,
        )  # fmt: skip
        token = lease_token(made.pk, number, "es")
        self._nodes[token] = list(zip(self._emptiest_first(), gpus, strict=False))
        for node, count in self._nodes[token]:
            # A lease that has really ended leaves its slots free.
            LeaseSlot.objects.bulk_create(
                LeaseSlot(lease=lease, node=node, slot=slot) for slot in range(count)
            )
        return token

    def _emptiest_first(self) -> list[Node]:
        """Return the pool's nodes with the emptiest first, so that no lease has to wait."""
        every = Node.objects.filter(pool=self.lab.pool).order_by("id")
        nodes = list(every.exclude(name__in=self.avoided))
        # Slurm reports which jobs have ended, because a job may falsify its files.
        runs = {token for token, job in self._queue().items() if not is_over(job.state)}
        used: Counter[int] = Counter()
        for token, shares in self._nodes.items():
            if token in runs or token not in self._launched:
                for node, count in shares:
                    used[node.pk] += count
        return sorted(nodes, key=lambda node: used[node.pk])

    def _queue(self) -> dict[str, SlurmJob]:
        """Return the jobs of leases as the executor does, even if a test removed its tools."""
        if not self._launched:
            return {}
        return self.executor._queue(self.executor._cluster(self.lab.pool.pk))

    def launch(self, *tokens: str) -> list[Report]:
        """Launch the leases until all run or have ended, and mark the intents as done."""
        at_us = self.now_us()
        wanted = [Launch(token, token_job(token), at_us) for token in tokens]
        self._launched.update(tokens)
        reports = self.executor.launch(wanted)

        def begun() -> bool:
            nonlocal reports
            reports = self.executor.launch(wanted)
            return all(report.state is not ReportState.ACCEPTED for report in reports)

        eventually(begun)
        for lease in Lease.objects.filter(job_id__in=map(token_job, tokens)):
            Intent.objects.get_or_create(
                lease=lease, kind=Intent.Kind.LAUNCH, term=1,
                defaults={"pool": self.lab.pool, "at": lease.granted_at, "state": "done"},
            )  # fmt: skip
        return reports

    def run(self, *argv: str, gpus: Sequence[int] = (1,), **fields: Any) -> str:
        token = self.lease(*argv, gpus=gpus, **fields)
        self.launch(token)
        return token

    def shell(self, text: str, gpus: Sequence[int] = (1,), **fields: Any) -> str:
        """Launch a shell script; return its token."""
        return self.run("/bin/sh", "-c", text, gpus=gpus, **fields)

    def stop(self, token: str, grace_s: float = 20.0) -> list[Report]:
        grace_us = int(grace_s * SECOND_US)
        return self.executor.stop([Stop(token, token_job(token), self.now_us(), grace_us)])

    def listed(self) -> dict[str, Report]:
        """Return the executor's reports by token."""
        reports = self.executor.list(self.lab.pool.pk, self.now_us())
        return {report.token: report for report in reports}

    def ended(self, token: str) -> Report:
        """Wait for a program's end and return its report."""

        def over() -> Report | None:
            report = self.listed().get(token)
            return report if report and report.state in OVER else None

        report = eventually(over)
        assert report is not None
        return report

    def now_us(self) -> int:
        return to_us(read_clock(self.lab.pool.pk).pool_at)

    def folder(self, token: str) -> Path:
        return lease_folder(self.root, token)

    def exit(self, token: str) -> dict[str, Any]:
        return read_json(self.folder(token) / "exit.json") or {}

    def log(self, token: str) -> str:
        data, _, _ = read_log(token_job(token), int(token.rsplit("-", 1)[1]))
        return data.decode(errors="replace")

    def says(self, token: str, *words: str) -> None:
        """Wait until a program has printed all of these texts."""
        eventually(lambda: all(word in self.log(token) for word in words))

    def queued(self, token: str) -> SlurmJob | None:
        return self.tools.queue().get(token)

    def close(self) -> None:
        self.tools.cancel(job.job_id for job in self.tools.queue().values())
        eventually(lambda: not processes_below(self.root))
        # Leave the cluster in its initial state for the next test.
        eventually(lambda: all(is_over(job.state) for job in self.tools.queue().values()))


@contextmanager
def slurm_world(
    root: Path, slurm: SlurmCluster, options: Mapping[str, Any] | None = None
) -> Iterator[SlurmWorld]:
    with override_settings(LOCAL_ROOT=str(root)):
        world = SlurmWorld(root, slurm, options=options or {})
        try:
            yield world
        finally:
            world.close()


@contextmanager
def own_slurm_world(root: Path, **settings: Any) -> Iterator[SlurmWorld]:
    """Yield a world on a cluster that a test may break; `settings` are the cluster's."""
    with (
        own_slurm(root / "slurm", **settings) as slurm,
        slurm_world(root / "jobs", slurm) as world,
    ):
        yield world
