"""Shares and prices of a round, implemented from docs/recompute/every-policy.md."""

# mypy: ignore-errors
import json
from collections import Counter
from decimal import Context, Decimal, localcontext

from .places import placed
from .second import Limits, Round, Row, Sums, gpus_of, rho, skip, tally


def recompute(snapshot: str) -> str:
    """Return the decision of a snapshot; both are JSON with the field names of bundles."""
    s = json.loads(snapshot, object_hook=Row)
    began = Round(s, placed)
    decision = began.answer()
    decision.skips += [*back_offs(s), *held_jobs(s)]
    return json.dumps(decision | shares_and_prices(s, decision, began.limits))


def follow(snapshot: str, decision: str) -> str:
    """Return, as JSON, the parts of a decision that follow from its picks under any policy."""
    s, d = (json.loads(text, object_hook=Row) for text in (snapshot, decision))
    sums, started = Sums(s, 0), {row.id: row.started_us for row in s.leases}
    s.entitlements = swapped(s.entitlements, d.swaps)
    over = {row.lease for row in [*d.ends, *d.renewals]}
    limits = Limits(s, [row for row in s.leases if row.id not in over])
    renewed = sorted(d.renewals, key=lambda row: (started[row.lease], row.lease))
    terms = [
        [row.job, limits.take(row.claim, row.own + row.borrowed)] for row in [*renewed, *d.grants]
    ]
    tables = {
        name: [row for _, row in sorted(getattr(sums, name).items())]
        for name in ("claims", "classes", "jobs")
    }
    advanced = Row(d, service=Row(tables, at_us=s.at_us))
    return json.dumps(
        {
            **shares_and_prices(s, advanced, limits),
            "service": advanced.service,
            "terms": terms,
            "back_offs": back_offs(s),
            "held_jobs": held_jobs(s),
        }
    )


def swapped(entitlements, swaps):
    """Return the quotas after the trades."""
    rows = {row.claim: row for row in entitlements}
    for swap in swaps:
        none = Row(gpus=0, mode="LEND_AND_BORROW", borrow_limit=None, lend_limit=None)
        row = rows.get(swap.claim, none)
        rows[swap.claim] = Row(
            row, tenant=swap.tenant, gpu_type=swap.gpu_type, gpus=row.gpus + swap.gpus
        )
    return list(rows.values())


def late_jobs(s):
    held = {row.job for row in s.leases}
    return {row.job: row for row in s.backoffs if row.until_us > s.at_us and row.job not in held}


def back_offs(s):
    late, skips = late_jobs(s), []
    for job in (job for job in s.jobs if job.id in late):
        numbers = Row(losses=late[job.id].losses, limit=6, until_us=late[job.id].until_us)
        skips.append(skip("backing_off", job.tenant, [job], numbers))
    return skips


HELD = {
    "operator": "held_by_operator",
    "tenant": "held_by_tenant",
    "idle": "held_idle",
    "dependency": "held_for_job",
    "sweep": "held_for_sweep",
    "not_before": "not_before",
}


def held_jobs(s):
    groups = {}
    for row in s.holds:
        groups.setdefault((row.tenant, row.code, row.until_us), []).append(row)
    return [
        skip(
            HELD[code],
            tenant,
            [Row(row, id=row.job) for row in rows],
            Row(until_us=until_us) if until_us else Row(),
        )
        for (tenant, code, until_us), rows in groups.items()
    ]


def shares_and_prices(s, decision, limits):
    """Return the shares and prices; `limits` count the round's terms and continuing leases."""
    terms = [*decision.renewals, *decision.grants]
    got, shares = tally((row.claim, row.own + row.borrowed) for row in terms), []
    before = tally((row.claim, gpus_of(row.placement)) for row in s.leases)
    for c in decision.service.claims:
        share, (a, f, _) = min(c.demand, c.quota), c.window
        own, borrowed = limits.own[c.claim], limits.borrowed[c.claim]
        shares.append(
            Row(
                {name: c[name] for name in ("tenant", "gpu_type", "quota", "demand")},
                deserved=share,
                held_before=before[c.claim],
                got=got[c.claim],
                own=own,
                borrowed=borrowed,
                alloc_gpu_us=a,
                fair_gpu_us=f,
                rho_before=rho(a, f),
                rho_after=rho(a + (own + borrowed) * s.lease_us, f + share * s.lease_us),
            )
        )
    used = tally((key[1], n) for of in (limits.own, limits.borrowed) for key, n in of.items())
    capacity, queued = (
        tally((n.gpu_type, n.gpus) for n in s.nodes),
        queued_by_type(s, decision, limits),
    )
    extra, elapsed_us = {row.gpu_type: row for row in s.surcharges}, s.at_us - s.service.at_us
    prices, new = [], []
    for row in sorted(s.prices, key=lambda row: row.gpu_type):
        name, base = row.gpu_type, row.base_micro
        load, old = (row.theta_milli, used[name], capacity[name]), extra.get(name)
        price = posted(base, *load)
        if old:
            cap, step = base * old.cap_milli // 1000, base * old.step_milli // 1000
            step = max(1, step if elapsed_us >= s.round_us else step * elapsed_us // s.round_us)
            aim = target(base, old.cap_milli, queued[name], *load) - old.surcharge_micro
            more = old.surcharge_micro + max(-step, min(step, aim))
            new.append(Row(old, queued=queued[name], surcharge_micro=min(cap, more)))
            price += new[-1].surcharge_micro
        prices.append(Row(row, price_micro=price, used=used[name], capacity=capacity[name]))
    return Row(shares=shares, prices=prices, surcharges=new)


def queued_by_type(s, decision, limits):
    over, late = {row.lease for row in decision.ends}, late_jobs(s)
    holders = {row.job for row in s.leases if row.id not in over} | {*late}
    holders |= {row.job for row in decision.grants}
    claimed = {row.job: row.claim for row in decision.service.jobs}
    capacity, needs = tally((n.gpu_type, n.gpus) for n in s.nodes), Counter()
    for job in (job for job in s.jobs if job.id in claimed and job.id not in holders):
        key, most = claimed[job.id], job.max_price_micro
        if (most is None or most >= limits.price[key[1]]) and job.gpus <= capacity[key[1]]:
            needs[key] += job.gpus
    queued = Counter()
    for key, gpus in needs.items():
        most, credit = limits.rows[key].borrow, limits.spendable.get(key[0])
        cost = limits.worst(1, key[1])
        bounds = [gpus - limits.left(key)] + ([] if most is None else [most - limits.borrowed[key]])
        bounds += [credit // cost] if credit is not None and cost else []
        queued[key[1]] += max(0, min(bounds))
    return queued


def power(theta_milli, used, capacity):
    theta = Decimal(theta_milli) / 1000
    return theta if used >= capacity else (Decimal(used) / capacity * theta.ln()).exp()


def posted(base, theta_milli, used, capacity):
    with localcontext(Context(prec=40)):
        return int((base * (power(theta_milli, used, capacity) - 1)).to_integral_value())


def target(base, cap_milli, queued, theta_milli, used, capacity):  # noqa: PLR0917 - of the formula
    if not queued or not capacity:
        return 0
    with localcontext(Context(prec=40)):
        now, cap = power(theta_milli, used, capacity), base * cap_milli // 1000
        load = Decimal(min(used, capacity) + queued) / capacity
        exponent = load * (Decimal(theta_milli) / 1000).ln()
        if exponent >= (Decimal(cap_milli) / 1000 + now).ln():
            return cap
        return min(cap, int((base * (exponent.exp() - now)).to_integral_value()))
