"""Shares of mixed GPU types under a named rule: `solve_shares`.

The rules, maximised over shares x >= 0 within the capacity of each type:

- `noncooperative`, OEF (9): all `w_l . x_l = pi_l t`, max t. A tenant whose cap binds stays
  at its throughput there, and the level of the others rises further (water filling).
- `cooperative`, OEF (10): max `sum_l w_l . x_l` without envy: `w_l . x_l / pi_l >= w_l .
  x_i / pi_i`. A tenant whose cap binds cannot be free of envy. Instead of envy rows it has
  a floor: the throughput of its equal split within its cap. Guarantees hold for the others.
- `gavel`: max of the smallest `w_l . x_l / (pi_l w_l . X)`, where X is the equal split, then
  of the second smallest, and so on (water filling). A cap limits only x_l, not X. Gavel's
  "time fractions sum to 1" is a cap of 1 GPU.
- `max_efficiency`, OEF (4): max `sum_l w_l . x_l`. `max_min`: the equal split.

Tenants are sorted by their speedups. Tenants with equal speedups and equal caps per weight are
merged into one class, whose share is divided by weight. So equal input gives equal bytes, the order
of the tenants does not matter, and equal tenants get equal throughput. Without caps, (9) and
`gavel` hand out a class's GPUs in the given order of tenants, slowest type first. So few tenants
hold several types. The other rules give equal tenants the same mix. On a tie, `max_efficiency`
prefers the slower tenant.

A tenant gets nothing and is left out of the program if its cap is 0 or it can run on no existing
GPU. Otherwise, (9) would hold all tenants at its throughput of 0.

Source: OEF (Middleware 2024), 4.2 and 4.3; Gavel (OSDI 2020), 4.1, as in its code.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations.baselines_lp import equal_split, most_efficient
from evenshare_core.formulations.problems import (
    Array,
    ShareError,
    ShareProblem,
    ShareRule,
    ShareSolution,
    SolverError,
)
from evenshare_core.formulations.programs import Backend, Efficiency, EnvyFree, Levels, SolverResult

# Module and class of each backend, imported at first use.
BACKENDS = {
    "fast": ("evenshare_core.formulations.oef_fast", "Fast"),
    "highs": ("evenshare_core.formulations.oef_highs", "Highs"),
    "ortools": ("evenshare_core.formulations.oef_ortools", "OrTools"),
    "pyomo": ("evenshare_core.formulations.oef_pyomo", "Pyomo"),
}
# The methods of rounds that former versions of policies decided; each replays to the same bytes.
FORMER = {**BACKENDS, "fast": ("evenshare_core.formulations.oef_fast", "Former")}
NOT_INSTALLED = "is not installed: pip install 'evenshare-core[solvers]'"
SAFE = "highs"  # the backend that is tried after one that found no optimum
BINDS = 1e-7  # a row binds if its dual is larger; the program is scaled to values of about 1
SLACK = 1e-6  # solutions are rejected if they violate a constraint by more than this fraction


@dataclass(frozen=True, eq=False)
class Classes:
    """The problem in canonical form: tenants of equal speedups and cap per weight are one class.

    `of` is the class of each tenant. `part` is the tenant's fraction of its class by weight, 0 if
    it can use nothing. For the solvers' tolerances, weights are scaled to a mean of 1 and GPUs to
    one per class; multiplying by `gpus` restores GPUs.
    """

    speedups: Array
    capacity: Array
    weights: Array
    caps: Array
    of: NDArray[np.int64]
    part: Array
    gpus: float

    def spread(self, shares: Array) -> Array:
        """Divide the shares of classes among their tenants, in GPUs, with the same mix for each."""
        taken = shares[self.of] * (self.part * self.gpus)[:, None]
        return np.asarray(taken)

    def hand_out(self, shares: Array) -> Array:
        """Divide the shares of classes by throughput; the first tenants get the slowest types.

        Throughputs are the same as with `spread`. At most n + k - 1 shares are not 0 if that holds
        for the classes.
        """
        taken = self.spread(shares)
        sizes = np.bincount(self.of[self.part > 0], minlength=len(self.weights))
        for row in np.flatnonzero(sizes > 1):
            members = np.flatnonzero((self.of == row) & (self.part > 0))
            work = self.speedups[row] * shares[row]
            # The class's throughput is cut by types, slowest first, and by members.
            types = np.concatenate([[0.0], np.cumsum(work)])
            ends = np.cumsum(self.part[members]) * types[-1]
            starts = np.concatenate([[0.0], ends[:-1]])
            ends[-1] = types[-1]
            high = np.minimum(ends[:, None], types[1:])
            overlap = np.maximum(0.0, high - np.maximum(starts[:, None], types[:-1]))
            used = np.divide(overlap, work, out=np.zeros_like(overlap), where=work > 0)
            taken[members] = used * shares[row] * self.gpus
        return taken


def solve_shares(
    problem: ShareProblem, rule: ShareRule | str, backend: str = "fast", *, former: bool = False
) -> ShareSolution:
    """Return the shares of a rule; deterministic, see the module for ties and caps.

    `former`: by the method of `FORMER`. With `fast`, the solution's `backend` is `ortools` if
    OR-Tools found the shares. If a backend finds no optimum, `highs` is tried, then the equal split
    is used. The solution records this in `backend`, `status` and `fallback`.

    Raises:
        ShareError: there is no such rule or backend, or its packages are not installed.
    """
    chosen = _rule(rule)
    if backend not in BACKENDS:
        raise ShareError("backend", f"{backend!r} is none of {', '.join(BACKENDS)}")
    classes = canonical(problem)
    if not len(classes.weights):
        nothing = np.zeros_like(problem.speedups)
        return _solution(problem, nothing, None, "closed form", "")
    if chosen is ShareRule.MAX_MIN:
        return _equal(problem, classes, "closed form", "optimal", "")
    reasons: list[str] = []
    for name in dict.fromkeys((backend, SAFE)):
        try:
            answer = SOLVE[chosen](classes, _load(name, FORMER if former else BACKENDS))
            _believe(classes, answer)
        except SolverError as error:
            reasons.append(f"{name}: {error}")
            continue
        levelled = (
            chosen in (ShareRule.NONCOOPERATIVE, ShareRule.GAVEL) and np.isinf(classes.caps).all()
        )
        spread = classes.hand_out if levelled else classes.spread
        shares = spread(answer.shares)
        return _solution(problem, shares, answer.prices, answer.backend, "; ".join(reasons))
    return _equal(problem, classes, "equal split", "fallback", "; ".join(reasons))


def missing_backend(name: str) -> str:
    """Return the reason why a backend cannot be used here; "" if it can."""
    try:
        _load(name)
    except ShareError as error:
        return str(error)
    return ""


def _rule(rule: ShareRule | str) -> ShareRule:
    try:
        return ShareRule(rule)
    except ValueError:
        raise ShareError("rule", f"{rule!r} is none of {', '.join(ShareRule)}") from None


def _load(name: str, backends: Mapping[str, tuple[str, str]] = BACKENDS) -> Backend:
    module, class_name = backends[name]
    try:
        loaded: Backend = getattr(import_module(module), class_name)()
    except ImportError as error:
        raise ShareError("backend", f"{name!r} {NOT_INSTALLED} ({error})") from error
    return loaded


def _equal(
    problem: ShareProblem, classes: Classes, backend: str, status: str, fallback: str
) -> ShareSolution:
    split = equal_split(classes.speedups, classes.capacity, classes.weights, classes.caps)
    solution = _solution(problem, classes.spread(split), None, backend, fallback)
    return ShareSolution(
        solution.shares, solution.throughputs, solution.total, None, backend, status, fallback
    )


def _solution(
    problem: ShareProblem, shares: Array, prices: Array | None, backend: str, fallback: str
) -> ShareSolution:
    throughputs = (problem.speedups * shares).sum(axis=1)
    total = math.fsum(throughputs)
    return ShareSolution(shares, throughputs, total, prices, backend, "optimal", fallback)


def canonical(problem: ShareProblem) -> Classes:
    """Sort tenants by speedups, merge equal ones, scale; see `Classes`."""
    pi = problem.pi / (math.fsum(problem.pi) / len(problem.pi))
    able = ((problem.speedups > 0) & (problem.capacity > 0)).any(axis=1) & (problem.cap > 0)
    kept = np.flatnonzero(able)
    keys = np.column_stack([problem.speedups[kept], (problem.cap / pi)[kept]])
    order = sorted_rows(keys)
    keys = keys[order]
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    inverse = np.empty(len(keys), dtype=np.int64)
    inverse[order] = np.cumsum(fresh) - 1
    each = pi[kept][order]
    weights = each[starts]
    ends = np.append(starts[1:], len(keys))
    for row in np.flatnonzero(ends - starts > 1):
        # fsum is exact, so the order of the tenants does not change the last bit.
        weights[row] = math.fsum(each[starts[row] : ends[row]])
    of = np.zeros(len(pi), dtype=np.int64)
    of[kept] = inverse
    gpus = float(problem.capacity.sum()) / max(1, len(starts)) or 1.0
    part = np.zeros(len(pi))
    part[kept] = pi[kept] / weights[inverse]
    caps = keys[starts, -1] * weights / gpus
    return Classes(keys[starts, :-1], problem.capacity / gpus, weights, caps, of, part, gpus)


def sorted_rows(keys: Array) -> NDArray[np.int64]:
    """Return the ascending order of rows, compared column by column; ties keep their order."""
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        rising = column[order]
        if len(rising) < 2 or (rising[1:] > rising[:-1]).all():
            return order
        if rising[0] != rising[-1]:
            break
    return np.lexsort(keys.T[::-1])


def _noncooperative(classes: Classes, backend: Backend) -> SolverResult:
    return water_fill(classes, classes.weights, backend, equal=True)


def _gavel(classes: Classes, backend: Backend) -> SolverResult:
    return water_fill(classes, equal_split_rates(classes), backend, equal=False)


def equal_split_rates(classes: Classes) -> Array:
    """Return the rates of `gavel`: pi_l w_l . X, in throughput.

    X, the same for all tenants, is the capacity of each type over the number of jobs. If its sum
    exceeds one GPU, it is scaled down to one. A common factor of all rates changes no share, so
    both the scaling and the number of jobs are left out here. Caps limit shares only, not X.

    Source: Gavel (OSDI 2020), 4.1: weights and the normalised throughput; X as in the
    `ProportionalPolicy` of its code.
    """
    parts = classes.weights / classes.weights.sum()
    return np.asarray(parts * (classes.speedups @ classes.capacity))


def water_fill(classes: Classes, rates: Array, backend: Backend, *, equal: bool) -> SolverResult:
    """Raise the level until no tenant can rise.

    With `equal`, OEF (9), only tenants whose cap binds are held, since the others must stay equal.
    Otherwise, all tenants whose level row binds are held. A positive dual proves that a tenant
    cannot rise in any solution, so it does not matter which vertex the solver returns.
    """
    held = np.zeros(len(rates), dtype=bool)
    held_at = np.zeros(len(rates))
    while True:
        program = Levels(
            *(classes.speedups, classes.capacity, rates, classes.caps),
            *(held, held_at, equal),
        )
        answer = backend.levels(program)
        reached = (classes.speedups * answer.shares).sum(axis=1)
        level = float((reached[~held] / rates[~held]).min())
        duals = answer.cap_prices if equal else answer.level_prices
        binding = ~held & (duals > BINDS)
        whole = float(rates[~held].sum())
        if not binding.any() or (held | binding).all():
            return SolverResult(
                *(answer.shares, answer.prices * whole, answer.cap_prices),
                *(answer.level_prices, answer.backend),
            )
        held_at = np.where(binding, rates * level, held_at)
        held = held | binding


def _cooperative(classes: Classes, backend: Backend) -> SolverResult:
    """Solve (10) repeatedly; cap the tenants that got more than their cap, until there are none."""
    floors = cap_floors(classes)
    capped = np.zeros(len(classes.weights), dtype=bool)
    while True:
        program = EnvyFree(
            *(classes.speedups, classes.capacity, classes.weights),
            *(np.where(capped, classes.caps, np.inf), ~capped, floors),
        )
        answer = backend.envy_free(program)
        over = ~capped & (answer.shares.sum(axis=1) > classes.caps * (1 + 1e-9))
        if not over.any():
            _nobody_envies(program, answer)
            return answer
        capped = capped | over


def cap_floors(classes: Classes) -> Array:
    """Return each tenant's throughput with the best GPUs of its equal split, up to its cap."""
    split = classes.weights[:, None] * classes.capacity / classes.weights.sum()
    order = np.argsort(-classes.speedups, axis=1, kind="stable")
    parts = np.take_along_axis(split, order, axis=1)
    before = np.cumsum(parts, axis=1) - parts
    taken = np.clip(classes.caps[:, None] - before, 0.0, parts)
    speeds = np.take_along_axis(classes.speedups, order, axis=1)
    return np.asarray((taken * speeds).sum(axis=1))


def _max_efficiency(classes: Classes, backend: Backend) -> SolverResult:
    program = Efficiency(classes.speedups, classes.capacity, classes.caps)
    if np.isinf(classes.caps).all():
        return most_efficient(program)
    return backend.efficiency(program)


SOLVE: dict[ShareRule, Callable[[Classes, Backend], SolverResult]] = {
    ShareRule.NONCOOPERATIVE: _noncooperative,
    ShareRule.COOPERATIVE: _cooperative,
    ShareRule.GAVEL: _gavel,
    ShareRule.MAX_EFFICIENCY: _max_efficiency,
}


def _believe(classes: Classes, answer: SolverResult) -> None:
    """Check that a solution meets the constraints, whatever the solver's status.

    Raises:
        SolverError: it violates a constraint by more than `SLACK`.
    """
    shares = answer.shares
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise SolverError("shares are negative or not numbers")
    slack = SLACK * float(classes.capacity.max())
    if (shares.sum(axis=0) > classes.capacity + slack).any():
        raise SolverError("shares exceed the capacity of a type")
    if (shares.sum(axis=1) > classes.caps + slack).any():
        raise SolverError("shares exceed a cap")


def _nobody_envies(program: EnvyFree, answer: SolverResult) -> None:
    """Check all of W X^T.

    Raises:
        SolverError: a watched tenant envies another by more than `SLACK`.
    """
    seen = program.speedups @ (answer.shares / program.weights[:, None]).T
    envy = (seen - seen.diagonal()[:, None])[program.watched]
    if envy.max(initial=0.0) > SLACK * float(seen.max()):
        raise SolverError("somebody envies")
