"""Recommends a lease length for a pool by simulating its last days under several lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evenshare_core.cli.collector import rare_collections
from evenshare_core.policies.registry import UnknownPolicyError
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.simulation.lease_tuning import (
    LENGTHS_S,
    LengthFigures,
    NoRecommendationError,
    recommend_length,
    run_length,
)
from scheduling.requests.pools import LENGTHS
from scheduling.selectors import stored_texts as texts
from scheduling.services.past_runs import PastRunError, read_past, read_runs


class LengthRun(NamedTuple):
    """The run of a lease length (seconds): its position, of `runs`, and its share of ended jobs."""

    position: int
    runs: int
    lease_s: int
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseTuning:
    """The results of a comparison of lease lengths.

    `start`: the start of the runs (pool time). `present_s`: the pool's present length. `jobs`: the
    number of jobs submitted since the start. `rows` are sorted by length.
    """

    pool: str
    policy: str
    days: int
    start: str
    jobs: int
    present_s: int
    rows: tuple[LengthFigures, ...]
    recommended: LengthFigures


def tune_lease(
    pool: str,
    *,
    days: int,
    lengths: Sequence[int] | None = None,
    policy: str | None = None,
    cold_s: float = 0,
    checkpoint_s: float = 0,
    remark: Callable[[str], None],
    progress: Callable[[LengthRun], None],
) -> LeaseTuning:
    """Simulate the jobs of a pool's last `days` (pool time) for each lease length (seconds).

    `lengths`: by default, those of `LENGTHS_S` within the pool's bounds. `policy`: by default, the
    pool's policy with its options. A job loses `cold_s` when it is resumed, and `checkpoint_s` when
    its lease expires. `remark` is called with each fact that the runs ignore. `progress` is called
    before each run and after each simulated round.

    Raises:
        PastRunError: the pool does not exist or has no jobs in these days; a length or an
            option is invalid; or no length can be recommended.

    Source: Astraea-LTGF 5.1.3, 6.2.
    """
    export, options = read_past(pool, days=days)
    present_s = round(options["lease_s"])
    tried = _lengths(lengths, options, remark)
    _apply_choice(options, policy, cold_s, checkpoint_s)
    _check_overheads(options, tried)
    for text in export.remarks:
        remark(text)
    scenario, runs = read_runs(export, options, [{"lease_s": length} for length in tried])
    rows = []
    for index, rules in enumerate(runs):
        run = LengthRun(index, len(tried), tried[index])
        progress(run)
        with rare_collections():
            report = _reports(progress, run, len(scenario.workload.jobs))
            rows.append(run_length(scenario, rules, progress=report))
    try:
        recommended = recommend_length(rows)
    except NoRecommendationError as error:
        raise PastRunError(str(error)) from error
    return LeaseTuning(
        pool, options["policy"], days, options["start"], len(scenario.workload.jobs), present_s,
        tuple(rows), recommended,
    )  # fmt: skip # rows of what belongs together


def _reports(
    progress: Callable[[LengthRun], None], run: LengthRun, jobs: int
) -> Callable[[int], None]:
    return lambda ended: progress(run._replace(share=ended / jobs))


def _lengths(
    asked: Sequence[int] | None, options: dict[str, Any], remark: Callable[[str], None]
) -> list[int]:
    """Return the lengths to try, sorted.

    Each is within the bounds, and at least a round of pool time.
    """
    round_s, bound_s = round(options["round_s"]), round(options["least_lease_s"])
    least_s = max(round_s, bound_s)
    most_s = round(options["most_lease_s"]) or LENGTHS["lease_s"][1]
    wanted = sorted(LENGTHS_S if asked is None else asked)
    outside = [length for length in wanted if not least_s <= length <= most_s]
    kept = [length for length in wanted if length not in outside]
    if not outside and kept:
        return kept
    why = texts.LEAST_ROUND if round_s >= bound_s else texts.LEAST_LENGTH
    bounds = texts.LENGTH_BOUNDS.format(least=f"{least_s:,}", why=why, most=f"{most_s:,}")
    if asked is None and kept:
        left = ", ".join(f"{length:,}" for length in outside)
        remark(texts.LENGTHS_SKIPPED.format(lengths=left, bounds=bounds))
        return kept
    named = ", ".join(f"{length:,} s" for length in outside)
    raise PastRunError(texts.NO_LENGTH.format(lengths=named, bounds=bounds))


def _apply_choice(
    options: dict[str, Any], policy: str | None, cold_s: float, checkpoint_s: float
) -> None:
    """Replace the pool's options by the requested ones; another policy has its defaults."""
    if policy is not None and policy != options["policy"]:
        try:
            policy_named(policy)
        except UnknownPolicyError as error:
            raise PastRunError(f"--policy: {error}") from error
        options.update(policy=policy, option=[])
    options.update(cold_s=cold_s, checkpoint_s=checkpoint_s)


def _check_overheads(options: dict[str, Any], tried: Sequence[int]) -> None:
    least_s = round(options["least_lease_s"]) or tried[0]
    if options["checkpoint_s"] >= least_s:  # with such a length no job would ever end
        raise PastRunError(
            f"--checkpoint-s: {options['checkpoint_s']:g} s would take up a whole lease; use less"
            f" than {least_s:,}, the shortest that a lease can be, or omit short lengths"
        )
