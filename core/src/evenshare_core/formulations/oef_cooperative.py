"""OEF (10), cooperative, solved with a few of its n (n - 1) envy rows at a time.

Columns are shares per unit of weight, z_l = x_l / pi_l. An envy row is then `w_l . (z_l - z_i) >=
0` for any weights. About 1.5 n rows bind at the optimum. In half of the general instances, not all
of these are between nearest neighbours, so rows are added as needed:

1. Start. With ordered speedups, each tenant gets rows towards the next five, and towards the one
   before. Otherwise, every fourth tenant is solved first in the same way, which gives a few
   bundles. Each tenant gets rows towards the `MENU` bundles that it likes best, and the owner of
   the best one gets a row towards it.
2. Solve with HiGHS's dual simplex from the last basis.
3. Check all of W Z^T. Add each tenant's `WORST` most violated rows. While the total falls, also
   drop slack rows: the program stays small and cannot cycle. Repeat until no row is violated.

Ties: `evenshare_core.formulations.ties`.

Source: OEF (Middleware 2024), 4.2.2 and (10); the method is ours.
"""

import numpy as np
from numpy.typing import NDArray

from evenshare_core.formulations.lp import ConstraintRows, LinearProgram
from evenshare_core.formulations.oef_highs import clean, uppers
from evenshare_core.formulations.problems import Array, SolverError
from evenshare_core.formulations.programs import EnvyFree, SolverResult
from evenshare_core.formulations.ties import min_max

INF = float("inf")
SMALL = 80  # up to this number of tenants, the start uses their nearest neighbours in log W
EVERY = 4  # in larger problems, every fourth tenant is solved first
# rows per tenant: at the start if small, at the start if large, per step
NEAREST, MENU, WORST = 3, 4, 5
# rows per tenant towards the next ones in ordered problems; most binding rows
AHEAD = 5
ROUNDS = 400  # maximum number of solves; each strictly improves, so it is never reached in practice
ENVY = 1e-9  # fraction of the largest throughput; a row violated by less counts as met
KEEP = 0.02  # fraction of the mean throughput; a row with more slack may be dropped

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def solve(program: EnvyFree, *, name: str, ordered: bool = False) -> SolverResult:
    """Solve `EnvyFree` by lazy rows; `ordered` if tenants are in the order of their speed ratios.

    Raises:
        SolverError: HiGHS found no optimum, or rows were still violated after `ROUNDS`.
    """
    model = EnvyModel(program)
    model.add(adjacent(model.envious) if ordered else start(program))
    values, duals = model.optimum()
    prices = duals[: model.types]
    caps = np.zeros(model.tenants)
    caps[model.capped] = duals[model.types : model.types + len(model.capped)]
    same = np.ones(model.tenants)
    values = min_max(model.program, values, program.speedups, same, model.complete)
    shares = values.reshape(model.tenants, model.types) * program.weights[:, None]
    return SolverResult(
        clean(shares, program.capacity), prices, caps, np.zeros(model.tenants), name
    )


class EnvyModel:
    """The program of (10) with only some of its envy rows."""

    def __init__(self, program: EnvyFree) -> None:
        """Set up all rows except the envy rows."""
        self.speedups, weights = program.speedups, program.weights
        self.tenants, self.types = program.speedups.shape
        self.envious = np.flatnonzero(program.watched)
        self.capped = np.flatnonzero(np.isfinite(program.caps))
        rows = ConstraintRows()
        for type_index in range(self.types):
            # sum_l pi_l z_lj <= m_j
            columns = np.arange(self.tenants) * self.types + type_index
            rows.add(columns, weights, -INF, program.capacity[type_index])
        for tenant in self.capped:
            # sum_j z_lj <= cap_l / pi_l
            cap = program.caps[tenant] / weights[tenant]
            rows.add(self.columns(int(tenant)), np.ones(self.types), -INF, cap)
        for tenant in np.flatnonzero(~program.watched):
            # Floor instead of envy rows: w_l . z_l >= floor_l / pi_l.
            floor = program.floors[tenant] / weights[tenant]
            rows.add(self.columns(int(tenant)), self.speedups[tenant], floor, INF)
        self.fixed = len(rows.lower)
        cost = (weights[:, None] * self.speedups).ravel()
        self.program = LinearProgram(cost, uppers(self.speedups), rows)
        self.have = np.eye(self.tenants, dtype=bool)
        self.pairs: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def columns(self, tenant: int) -> NDArray[np.int64]:
        return np.arange(tenant * self.types, (tenant + 1) * self.types)

    def add(self, pairs: Pairs) -> None:
        """Add the rows `w_l . (z_l - z_i) >= 0` of pairs (l, i), unless the program has them."""
        fresh = ~self.have[pairs]
        codes = np.unique(pairs[0][fresh] * self.tenants + pairs[1][fresh])
        if not len(codes):
            return
        envious, envied = codes // self.tenants, codes % self.tenants
        self.have[envious, envied] = True
        kinds = np.arange(self.types)
        indices = np.hstack(
            [envious[:, None] * self.types + kinds, envied[:, None] * self.types + kinds]
        )
        values = np.hstack([self.speedups[envious], -self.speedups[envious]])
        self.program.add_block(indices, values, 0.0)
        self.pairs = (np.append(self.pairs[0], envious), np.append(self.pairs[1], envied))

    def optimum(self) -> tuple[Array, Array]:
        """Solve, add violated rows and drop slack rows, until no row is violated."""
        last = INF
        for _ in range(ROUNDS):
            values, duals = self.program.solve()
            violated = self.violated(values)
            if violated is None:
                return values, duals
            total = self.program.objective()
            if total < last * (1 - 1e-9):
                self.drop(values)
            last = total
            self.add(violated)
        raise SolverError(f"envy rows were still added after {ROUNDS} rounds")

    def complete(self, values: Array) -> bool:
        """Return whether no envy row is violated; otherwise, add some of the violated rows."""
        violated = self.violated(values)
        if violated is not None:
            self.add(violated)
        return violated is None

    def violated(self, values: Array) -> Pairs | None:
        """Return each tenant's most violated rows of all of W Z^T; None if there is no envy."""
        bundles = values.reshape(self.tenants, self.types)
        seen = self.speedups[self.envious] @ bundles.T
        envy = seen - seen[np.arange(len(self.envious)), self.envious][:, None]
        envy[self.have[self.envious]] = 0.0
        limit = ENVY * max(1.0, float(seen.max(initial=0.0)))
        if not (envy > limit).any():
            return None
        count = min(WORST, self.tenants)
        worst = np.argpartition(-envy, count - 1, axis=1)[:, :count]
        violated = np.take_along_axis(envy, worst, axis=1) > limit
        envious = np.repeat(self.envious, count).reshape(-1, count)[violated]
        return envious, worst[violated]

    def drop(self, values: Array) -> None:
        """Drop the envy rows that do not bind and have much slack."""
        bundles = values.reshape(self.tenants, self.types)
        envious, envied = self.pairs
        slack = (self.speedups[envious] * (bundles[envious] - bundles[envied])).sum(axis=1)
        much = KEEP * float((self.speedups * bundles).sum()) / self.tenants
        gone = self.program.basic_rows()[self.fixed :] & (slack > much)
        if not gone.any():
            return
        self.program.drop(np.append(np.zeros(self.fixed, dtype=bool), gone))
        self.have[envious[gone], envied[gone]] = False
        self.pairs = (envious[~gone], envied[~gone])


def adjacent(envious: NDArray[np.int64]) -> Pairs:
    """Pair each tenant with the next `AHEAD` tenants, and with the previous one."""
    pairs = [(envious[:-step], envious[step:]) for step in range(1, AHEAD + 1)]
    pairs.append((envious[1:], envious[:-1]))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def start(program: EnvyFree) -> Pairs:
    """Guess the binding rows from nearest neighbours, or from the solution of a sample."""
    envious = np.flatnonzero(program.watched)
    if len(envious) <= SMALL:
        return nearest(program.speedups, envious)
    sample = envious[::EVERY]
    part = program.weights[sample].sum() / program.weights.sum()
    none = np.full(len(sample), INF)
    smaller = EnvyFree(
        program.speedups[sample],
        program.capacity * part,
        program.weights[sample],
        none,
        np.ones(len(sample), dtype=bool),
        none,
    )
    model = EnvyModel(smaller)
    model.add(start(smaller))
    bundles = model.optimum()[0].reshape(model.tenants, model.types)
    _, first = np.unique(np.round(bundles / bundles.max(), 6), axis=0, return_index=True)
    hubs = sample[first]
    liked = program.speedups[envious] @ bundles[first].T
    count = min(MENU, len(hubs))
    menu = hubs[np.argsort(-liked, axis=1, kind="stable")[:, :count]]
    towards = (np.repeat(envious, count), menu.ravel())
    back = (menu[:, 0], envious)
    return np.append(towards[0], back[0]), np.append(towards[1], back[1])


def nearest(speedups: Array, envious: NDArray[np.int64]) -> Pairs:
    """Pair each tenant with the `NEAREST` tenants of the smallest speedup ratios."""
    logs = np.log(np.maximum(speedups[envious], 1e-3))
    apart = ((logs[:, None] - logs[None]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    count = min(NEAREST, len(envious) - 1)
    close = np.argsort(apart, axis=1, kind="stable")[:, :count]
    return np.repeat(envious, count), envious[close].ravel()
