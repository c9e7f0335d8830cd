"""Test the demo pool `deadlines`: jobs get answers, plans move, deadlines are met and missed."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator

import pytest

from billing.checks import run_checks
from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import SECOND_US
from portal.demo.data import DATA
from portal.demo.deadlines import BEGIN, LENGTH, MAINTAINED, POOL, QUOTAS, SINCE
from portal.demo.deadlines_trace import COLUMNS, TEAMS, deadline_rows
from portal.demo.philly import seed_demo
from scheduling.engine.refits import refit
from scheduling.models import Job, MaintenanceWindow, Pool, Round, StopForecast
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from tenants.models import Quota
from tests.factories import Cluster
from tests.stages import Stages, staged

STEP_S = POOL.round_s * POOL.scale
# Four hours of pool time: the calm, busy and last hour of a cycle, and the next calm hour.
ROUNDS = 4 * 3600 // STEP_S
Story = list[tuple[Round, Snapshot, Decision]]


@pytest.fixture
def pool(stages: Stages) -> Iterator[Pool]:
    with stages.copy(seed_demo):
        yield Pool.objects.get(name=POOL.name)


def four_minutes() -> Story:
    """Run four minutes of the demo, with curve fits between the rounds."""
    seed_demo()
    pool = Pool.objects.get(name=POOL.name)
    first = pool.nodes.select_related("gpu_type").first()
    assert first is not None
    lab = Cluster(pool, first.gpu_type, {}, BEGIN)
    story = []
    for count in range(ROUNDS):
        result = lab.round(after_s=STEP_S if count else 0)
        refit()
        if result.round is not None:
            story.append((result.round, *round_values(result.round)))
    return story


story = staged(four_minutes)


class TestDemoTrace:
    def test_matches_its_seed(self) -> None:
        with gzip.open(DATA / f"{POOL.trace}.csv.gz", "rt", newline="") as file:
            rows = list(csv.reader(file))
        assert rows == [list(COLUMNS), *([str(cell) for cell in row] for row in deadline_rows())]

    def test_has_strict_soft_and_no_deadlines(self) -> None:
        steps = {len(str(row[8]).split("-")) if row[8] else 0 for row in deadline_rows()}
        assert steps == {0, 1, 4}

    def test_every_fifth_deadline_job_has_metric_without_estimate(self) -> None:
        dated = [row for row in deadline_rows() if row[7]]
        by_metric = [row for row in dated if row[-1]]
        assert len(by_metric) == len(dated) // 5
        assert all(row[6] == "" and int(row[9]) > int(row[3]) for row in by_metric)
        assert {row[-1] for row in by_metric} <= {team.stop_when for team in TEAMS}


class TestDemoSeed:
    def test_shares_all_gpus_and_plans_maintenance(self, pool: Pool) -> None:
        quotas = {row.tenant.slug: row.gpus for row in Quota.objects.filter(pool=pool)}
        assert quotas == {f"vc-{team.tenant}": team.quota for team in TEAMS}
        assert sum(QUOTAS.values()) == POOL.nodes * POOL.gpus_per_node
        window = MaintenanceWindow.objects.get(pool=pool)
        assert window.node.name == MAINTAINED
        assert (window.starts_at, window.ends_at) == (BEGIN + SINCE, BEGIN + SINCE + LENGTH)

    def test_is_idempotent(self, pool: Pool) -> None:
        assert not seed_demo()
        assert Pool.objects.filter(name=pool.name).count() == 1


class TestFourMinutesOfDemo:
    def test_answer_all_deadlines_and_meet_most_plans(self, story: Story) -> None:
        answered = first_answers(story)
        dated = {row.id for _, seen, _ in story for row in seen.deadlines}
        assert dated == set(answered)
        states = {state for _, state, _ in answered.values()}
        assert states == {DeadlineState.PLANNED, DeadlineState.REFUSED}
        # An eighth of the strict deadlines cannot be met.
        assert DeadlineLimit.LENGTH in {limit for *_, limit in answered.values()}
        planned = [job for job, (_, state, _) in answered.items() if state == DeadlineState.PLANNED]
        over = list(Job.objects.filter(pk__in=planned, ended_at__isnull=False))
        met = [
            job for job in over
            if job.deadline_at and job.ended_at and job.ended_at <= job.deadline_at
        ]  # fmt: skip
        assert len(over) > 10
        assert len(met) > len(over) * 2 // 3

    def test_learn_stopping_points_from_metrics(self, story: Story) -> None:
        forecasts = StopForecast.objects.select_related("job__virtual_work")
        made = [row for row in forecasts.order_by("job_id") if row.source != "cap"]
        assert made
        for row in made:
            true = row.job.virtual_work.duration_us // SECOND_US
            assert row.iterations == pytest.approx(true, rel=0.25)
        sources = {
            (row.source.value, bool(job.stop_metric))
            for _, seen, _ in story
            for row in seen.estimates
            for job in [Job.objects.get(pk=row.id)]
        }
        assert ("fitted", True) in sources
        assert ("fitted", False) not in sources

    def test_move_plans_and_name_causes(self, story: Story) -> None:
        causes = {row.cause for _, _, decided in story for row in decided.answers}
        assert {"demand", "capacity"} <= causes

    def test_solve_all_programs_by_ortools(self, story: Story) -> None:
        solves = [decided.solve for _, _, decided in story if decided.solve is not None]
        assert len(solves) > len(story) // 2
        assert {solve.backend for solve in solves} == {"ortools"}

    def test_replay_byte_for_byte_with_sound_books(self, story: Story) -> None:
        for round_, _, _ in story:
            assert replay_stored_round(round_).same
        assert [check.name for check in run_checks() if check.violations] == []


def first_answers(story: Story) -> dict[int, tuple[int, DeadlineState, DeadlineLimit | None]]:
    """Return (round, state, limit) of each job's first answer, from the first round that has it."""
    first_seen: dict[int, int] = {}
    answered: dict[int, tuple[int, DeadlineState, DeadlineLimit | None]] = {}
    for round_, seen, decided in story:
        for row in seen.deadlines:
            first_seen.setdefault(row.id, round_.number)
        for answer in decided.answers:
            given = (round_.number, answer.state, answer.limit)
            assert answered.setdefault(answer.job, given)[0] == first_seen[answer.job]
    return answered
