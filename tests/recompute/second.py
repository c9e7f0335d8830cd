"""A second implementation of ltgf's round, written from docs/recompute and to be read with it."""

# fmt: off
# mypy: ignore-errors
from collections import Counter, defaultdict
from math import inf

DEFAULTS = {"work_conserving": True, "tenant_share": "demand", "new_jobs_first": False,
            "spread": False, "reserve_after_leases": 2, "fairness_window_s": 0, "lease_bonus": 0.0,
            "new_job_bonus": 0.0, "deadline_bonus": 0.0, "deadline_horizon_s": 86_400}
SUMS = ("alloc_gpu_us", "fair_gpu_us", "entitled_gpu_us")
class Row(dict):  # a row of a table; its fields are also attributes
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__
    claim = property(lambda row: (row.tenant, row.gpu_type))
    arrival = property(lambda job: (job.submitted_us, job.id))
    level = property(lambda claim: rho(claim.alloc_gpu_us, claim.fair_gpu_us) or 0.0)
    window = property(lambda claim: [claim[name] - then for name, then in zip(
        SUMS, [*claim.marks, [0] * 4][0][1:], strict=True)])
def tally(pairs):
    sums = Counter()
    for key, count in pairs:
        sums[key] += count
    return sums
def rho(received, deserved):
    return received / deserved if deserved else None
def gpus_of(placement):
    return sum(gpus for _, gpus in placement)
def on_nodes(leases):
    return tally(pair for lease in leases for pair in lease.placement)
def accepted(job, capacity):
    return sorted(name for name in job.gpu_types or capacity if name in capacity)
def first_of(rows):
    return next(((reason, numbers) for reason, holds, numbers in rows if holds), None)
class Sums:  # the fairness sums, advanced to the time of the round
    def __init__(self, s, window_us):
        self.capacity = tally((node.gpu_type, node.gpus) for node in s.nodes)
        self.jobs = {row.job: row for row in s.service.jobs}
        self.claims = {row.claim: row for row in s.service.claims}
        self.classes = {(*row.claim, row.demand, row.weight): row for row in s.service.classes}
        for change in s.changes:
            self.apply(change, max(change.at_us, s.service.at_us))
        self.move_waiting(s)
        for claim in [self.bring(key, s.at_us) for key in self.claims]:
            now, marks = [s.at_us, *(claim[name] for name in SUMS)], claim.marks
            is_new = marks and s.at_us - marks[-1][0] >= window_us // 16
            marks = (marks or [[s.at_us, 0, 0, 0]]) + ([now] if is_new else [])
            marks = [mark for mark in marks if mark[0] >= s.at_us - window_us] or marks[-1:]
            claim.marks = marks if window_us else []
    def bring(self, key, t):
        zero = dict.fromkeys(("quota", "demand", "weights", "held", *SUMS), 0)
        new = Row(zero, tenant=key[0], gpu_type=key[1], since_us=t, marks=[])
        claim = self.claims.setdefault(key, new)
        d, share, claim.since_us = t - claim.since_us, min(claim.demand, claim.quota), t
        for name, gpus in zip(SUMS, (claim.held, share, claim.quota), strict=True):
            claim[name] += gpus * d
        for row in (row for of, row in self.classes.items() if of[:2] == key):
            row.fair_gpu_us += min(row.demand * d, share * row.weight * d // claim.weights)
        return claim
    def count(self, job, jobs, t):  # a job joins (1) or leaves (-1)
        claim, key = self.bring(job.claim, t), (*job.claim, job.demand, job.weight)
        new = zip(("tenant", "gpu_type", "demand", "weight"), key, strict=True)
        row = self.classes.setdefault(key, Row(new, jobs=0, fair_gpu_us=0))
        claim.demand += jobs * job.demand
        claim.weights += jobs * job.weight
        job.baseline_gpu_us += jobs * row.fair_gpu_us
        row.jobs += jobs
        if not row.jobs:
            del self.classes[key]
    def move(self, job, gpu_type, t):
        for jobs, name in ((-1, job.gpu_type), (1, gpu_type)) * (gpu_type != job.gpu_type):
            job.gpu_type = name
            self.count(job, jobs, t)
    def apply(self, c, t):
        if c.kind == "quota":
            self.bring((c.tenant, c.gpu_types[0]), t).quota = c.gpus
        elif c.kind == "active":
            new = Row(job=c.job, tenant=c.tenant, gpu_type=self.claimed(c, t), demand=c.gpus,
                      weight=c.weight, baseline_gpu_us=0, alloc_gpu_us=0, held=0, held_since_us=0)
            self.count(self.jobs.setdefault(c.job, new), 1, t)
        else:
            job, gpus = self.jobs[c.job], c.gpus if c.kind == "hold" else 0
            self.move(job, (c.gpu_types if gpus and c.gpu_types else [job.gpu_type])[0], t)
            self.bring(job.claim, t).held += gpus - job.held
            job.alloc_gpu_us += job.held * (t - job.held_since_us)
            job.held, job.held_since_us = gpus, t
            if c.kind == "inactive":
                self.count(self.jobs.pop(c.job), -1, t)
    def claimed(self, c, t):
        names = sorted(c.gpu_types or self.capacity or {name for _, name in self.claims})
        names = [name for name in names if self.capacity[name] >= c.gpus] or names
        ranked = [(claim.demand + c.gpus > claim.quota, self.bring(claim.claim, t).level, name)
                  if (claim := self.claims.get((c.tenant, name))) else (False, 0.0, name)
                  for name in names if len(names) > 1]
        return min(ranked)[-1] if ranked else names[0]
    def move_waiting(self, s):
        held = {row.job for row in s.leases} | {n for n, row in self.jobs.items() if row.held}
        waiting = sorted((job for job in s.jobs if job.id not in held), key=lambda job: job.arrival)
        types = {job.id: tuple(accepted(job, self.capacity)) for job in waiting}
        def kind(number):
            return (*self.jobs[number].claim, self.jobs[number].demand, types[number])
        groups, has_moved = set(), True
        while has_moved:
            groups, has_moved = groups | {kind(number) for number in types}, False
            for group, number in ((group, number) for group in sorted(groups) for number in types):
                if kind(number) == group and (better := self.better(*group, s.at_us)):
                    self.move(self.jobs[number], better, s.at_us)
                    has_moved = True
    def better(self, tenant, claimed, gang, types, t):
        def won(name, before, after):
            claim = self.claims.get((tenant, name), Row(demand=0, quota=0))
            return min(claim.demand + after, claim.quota) - min(claim.demand + before, claim.quota)
        names = [n for n in types if n != claimed and self.capacity[n] >= gang and len(types) > 1]
        ranked = [(-won(name, 0, gang), self.bring((tenant, name), t).level, name) for name in names
                  if won(name, 0, gang) > won(claimed, -gang, 0)]
        return min(ranked)[-1] if ranked else ""
class Limits:  # the limits that apply to jobs, from held and newly taken GPUs
    def __init__(self, s, going):
        self.rows = defaultdict(lambda: Row(gpus=0, borrow=None, lend=None), {row.claim: Row(
            row, borrow=row.borrow_limit if row.mode == "LEND_AND_BORROW" else 0,
            lend=0 if row.mode == "RESERVE" else row.lend_limit) for row in s.entitlements})
        self.price = tally((row.gpu_type, row.price_micro) for row in s.prices)
        self.lease_us, self.spendable = s.lease_us, {n.id: n.spendable_micro for n in s.tenants}
        self.own, held = tally((row.claim, row.own) for row in going), on_nodes(going)
        self.borrowed = tally((row.claim, row.borrowed) for row in going)
        self.unused = tally((n.gpu_type, max(0, n.gpus - held[n.id])) for n in s.nodes)
    def left(self, key):
        return max(0, self.rows[key].gpus - self.own[key])
    def worst(self, gpus, name):
        return -(-gpus * self.price[name] * self.lease_us // 3_600_000_000)
    def check(self, job, name):
        key, n, most, idle = (job.tenant, name), job.gpus, job.max_price_micro, self.unused[name]
        own, borrowed, more = self.own[key], self.borrowed[key], n - self.left(key)
        quota, limit = self.rows[key].gpus, self.rows[key].borrow
        kept = sum(max(0, self.left(one) - row.lend) for one, row in self.rows.items()
                   if one[1] == name and one != key and row.lend is not None)
        price, cost, credit = self.price[name], self.worst(more, name), self.spendable.get(key[0])
        return None if more <= 0 else first_of((
            ("quota_limit", limit is not None and borrowed + more > limit, Row(
                quota=quota, own=own, borrowed=borrowed, may_borrow=limit, needed=n)),
            ("reserved_quota", idle - kept < n <= idle, Row(unused=idle, kept=kept, needed=n)),
            ("price_above_max", most is not None and price > most, Row(
                price_micro=price, max_price_micro=most)),
            ("budget", credit is not None and cost > credit, Row(
                needed_micro=cost, spendable_micro=credit))))
    def take(self, key, gpus):
        own = min(gpus, self.left(key))
        self.own[key] += own
        self.borrowed[key] += gpus - own
        self.unused[key[1]] -= gpus
        if self.spendable.get(key[0]) is not None:
            self.spendable[key[0]] -= self.worst(gpus - own, key[1])
        price = self.price[key[1]] if own < gpus else 0
        return Row(own=own, borrowed=gpus - own, price_micro=price)
class Places:  # the free GPUs on the nodes of a type, on which gangs are placed
    def __init__(self, s, name, spread, going, due):
        self.gpus, self.spread = {n.id: n.gpus for n in s.nodes if n.gpu_type == name}, spread
        held, self.ended, self.back = on_nodes(going), on_nodes(due), Counter()
        self.available = {n: max(0, gpus - held[n]) for n, gpus in self.gpus.items()}
        self.size, self.capacity = max(self.gpus.values(), default=0), sum(self.gpus.values())
        self.start = self.room()
    def room(self, counts=None):
        counts = self.available if counts is None else counts
        return sum(counts.values()), max(counts.values(), default=0)
    def fits(self, n, room=None):
        total, most = room or self.room()
        return n <= total and (n > self.size or self.spread or n <= most)
    def where(self, counts, n):
        taken, counts = [], dict(counts)
        if not self.fits(n, self.room(counts)):
            return None
        while max(counts.values()) < n:
            taken.append(min([-count, node] for node, count in counts.items()))
            n -= counts.pop(taken[-1][1])
        last = min((count, node) for node, count in counts.items() if count >= n)[1]
        return sorted([*([node, -count] for count, node in taken), [last, n]])
    def place(self, n):
        free = {node: max(0, count - self.ended[node]) for node, count in self.available.items()}
        return self.where(free, n) or self.where(self.available, n)
    def take(self, placement):
        for node, gpus in placement:
            self.available[node] -= gpus
    def hold_back(self, s, row, gang):
        is_gone = any(self.gpus.get(node, 0) < gpus for node, gpus in row.holds)
        row.holds = self.soonest(s, gang) if is_gone or gpus_of(row.holds) != gang else row.holds
        pairs = [(n, min(gpus, self.available[n])) for n, gpus in row.holds]
        self.back += Counter(dict(pairs))
        self.take(pairs)
    def soonest(self, s, gang):
        def when(node, gpus):
            rows = [(max(row.expires_us, row.protected_until_us, s.at_us), count)
                    for row in s.leases for n, count in row.placement if n == node]
            rows.append((s.at_us, self.gpus[node] - sum(count for _, count in rows)))
            return min(t for t, _ in rows if sum(n for u, n in rows if u <= t) >= gpus)
        if gang <= self.size:
            return [[min((when(n, gang), n) for n, g in self.gpus.items() if g >= gang)[1], gang]]
        holds = []
        for _, minus, node in sorted((when(n, g), -g, n) for n, g in self.gpus.items() if g):
            holds.append([node, min(gang - gpus_of(holds), -minus)])
        return sorted(pair for pair in holds if pair[1])
class Round:  # the picks of a round, and the decision that follows from them
    def __init__(self, s, placed=lambda _, jobs, __: jobs):
        self.s, self.o, held = s, Row(DEFAULTS | s.options), {row.job for row in s.leases}
        self.sums = Sums(s, self.o.fairness_window_s * 10**6)
        self.due = {row.job: row for row in s.leases
                    if max(row.expires_us, row.protected_until_us) <= s.at_us}
        self.going = [row for row in s.leases if row.job not in self.due]
        late = {row.job for row in s.backoffs if row.until_us > s.at_us} - held
        self.jobs = placed(s, {one.id: one for one in s.jobs if one.id not in late}, self.going)
        self.places = {n: Places(s, n, self.o.spread, self.going, self.due.values())
                       for n in {*self.sums.capacity, *(name for _, name in self.sums.claims)}}
        queues = {key: [] for key in self.sums.claims}
        for one in [self.candidate(n) for n in self.jobs if n in self.due or n not in held]:
            for name in one.types:
                queues.setdefault((one.tenant, name), []).append(one)
        new, self.turns = Row(dict.fromkeys(SUMS, 0), quota=0, marks=[]), {}
        for key, queue in sorted(queues.items()):
            claim, fair = self.sums.claims.get(key, new), 1 + (self.o.tenant_share == "quota")
            self.turns[key] = Row(key=key, a=claim.window[0], f=claim.window[fair], at=0, out=None,
                                  quota=claim.quota, queue=sorted(queue, key=lambda one: one.rank))
        self.limits, self.picks, self.refused, self.served = Limits(s, self.going), {}, {}, {}
        memory = s.memory if self.o.reserve_after_leases else {}
        self.passed = {int(number): since for number, since in memory.get("passed", {}).items()}
        self.reserved = memory.get("reserved", {})
    def candidate(self, number):
        job, row, o, t = self.jobs[number], self.sums.jobs[number], self.o, self.s.at_us
        received = row.alloc_gpu_us + row.held * (t - row.held_since_us)
        fair_us = self.sums.classes[(*row.claim, row.demand, row.weight)].fair_gpu_us
        ratio, score, rest = rho(received, fair_us - row.baseline_gpu_us), 0.0, 0.0
        if row.alloc_gpu_us or row.held:
            score, rest = (inf, received / row.weight) if ratio is None else (ratio, 0.0)
        far = inf if job.deadline_us is None else job.deadline_us - t
        bonus = o.lease_bonus * job.terms + (0 if job.terms else o.new_job_bonus)
        bonus += o.deadline_bonus * (1 - min(1.0, max(0.0, far / (o.deadline_horizon_s * 10**6))))
        types, claimed = accepted(job, self.sums.capacity), row.gpu_type
        roomy = [n for n in types if self.sums.capacity[n] >= job.gpus] or types or [claimed]
        first = claimed if claimed in roomy else roomy[0]
        rank = (o.new_jobs_first and job.terms > 0, score - bonus, rest, *job.arrival)
        return Row(job, n=job.gpus, types=[first, *(name for name in types if name != first)],
                   rank=rank, rho=ratio, lease=self.due.get(number))
    def why_not(self, one, name):
        numbers = Row(needed=one.n, capacity=self.places[name].capacity)
        is_large = one.n > numbers.capacity
        return ("too_large", numbers) if is_large else self.limits.check(one, name)
    def told_of(self, one, names):
        return next((name for name in names if not self.why_not(one, name)), names[0])
    def attempt(self, one, name, note=""):
        places, turn = self.places[name], self.turns[one.tenant, name]
        lease = one.lease if one.lease and one.lease.gpu_type == name else None
        is_kept = lease and all(places.available.get(n, 0) >= g for n, g in lease.placement)
        places.ended -= on_nodes([lease] if lease else [])
        if refusal := self.why_not(one, name):
            self.refused[one.id, name] = refusal[0]
            return "refused"
        placement = lease.placement if is_kept else places.place(one.n)
        if not placement:
            return "no room"
        places.take(placement)
        key = Row(tenant_rho=rho(turn.a, turn.f), job_rho=one.rho, note=note)
        self.picks[one.id] = Row(
            {"lease": lease.id, "gpus": one.n} if is_kept else {"placement": placement},
            order=len(self.picks) + 1, job=one.id, tenant=one.tenant, gpu_type=name, key=key)
        if turn.f and not note:
            self.served[name] = max(self.served.get(name, 0.0), key.tenant_rho)
        self.limits.take(turn.key, one.n)
        turn.a += one.n * self.s.lease_us
        return "picked"
    def serve_reserved(self):
        waiting = {}
        for one in (one for turn in self.turns.values() for one in turn.queue if not one.lease):
            names = [n for n in one.types if self.reserved.get(n, Row(job=0)).job == one.id]
            name = self.told_of(one, names + one.types) if one.id in self.passed else one.types[0]
            waiting |= {one.id: (one, name)} if one.n <= self.places[name].capacity else {}
        self.passed = {n: since for n, since in self.passed.items() if n in waiting}
        may = {n: waiting[n][1] for n in self.passed if not self.why_not(*waiting[n])}
        self.reserved = {n: row for n, row in self.reserved.items() if may.get(row.job) == n}
        late_us = self.s.at_us - self.o.reserve_after_leases * self.s.lease_us
        for since, number in sorted((since, number) for number, since in self.passed.items()):
            if since < late_us and number in may:
                self.reserved.setdefault(may[number], Row(job=number, holds=[]))
        for name, row in sorted(self.reserved.items()):
            if self.attempt(waiting[row.job][0], name, "reserved") == "no room":
                self.places[name].hold_back(self.s, row, waiting[row.job][0].n)
    def is_put_off(self, one, name):
        own = [other for other in one.types if one.n <= self.limits.left((one.tenant, other))]
        is_better = name not in own and any(self.places[other].fits(one.n) for other in own)
        return one.lease.gpu_type != name if one.lease else is_better
    def next_turn(self):
        heads = []
        for turn in self.turns.values():
            while turn.at < len(turn.queue) and turn.queue[turn.at].id in self.picks:
                turn.at += 1
            if turn.at < len(turn.queue):
                rank = (inf, turn.a / turn.quota, 0) if turn.quota else (inf, inf, turn.a)
                rank = (rho(turn.a, turn.f) or 0.0, 0.0, 0) if turn.f or not turn.a else rank
                heads.append((*rank, *turn.queue[turn.at].arrival, turn.key))
        return self.turns[min(heads)[-1]] if heads else None
    def take_turns(self):
        untried, later, is_conserving = set(self.places), [], self.o.work_conserving
        while turn := self.next_turn():
            name, queue, end = turn.key[1], turn.queue, len(turn.queue)
            places, one = self.places[name], queue[turn.at]
            if not places.room()[0] and name not in untried:
                turn.at = end
                continue
            turn.at, is_later = turn.at + 1, self.is_put_off(one, name)
            later += [(turn, one)] if is_later else []
            outcome = "later" if is_later else self.attempt(one, name)
            if outcome == "no room" and name in untried and not one.lease:
                self.passed.setdefault(one.id, self.s.at_us)
            untried -= {name} if outcome in {"picked", "no room"} else set()
            if outcome == "no room" and not is_conserving:
                turn.at, turn.out = end, one.id if places.room()[0] else None
            while (is_conserving and name not in untried and turn.at < end
                   and not queue[turn.at].lease and not places.fits(queue[turn.at].n)):
                turn.at += 1
        for turn, one in later:
            if one.id not in self.picks and turn.out is None:
                self.attempt(one, turn.key[1], "other_type")
    def stay(self):
        grants = {n: row for n, row in self.picks.items() if len(row.get("placement", ())) == 1}
        for number, grant in list(grants.items()):
            lease, away, moved = self.due.get(number), grant.placement[0][0], []
            if lease and lease.gpu_type == grant.gpu_type and len(lease.placement) == 1:
                home, left = lease.placement[0]
                there = sorted((-row.placement[0][1], row.order, row) for row in grants.values()
                               if row is not grant and row.placement[0][0] == home != away)
                for minus, _, row in there:
                    moved, left = ([*moved, row], left + minus) if -minus <= left else (moved, left)
                if home == away or not left:
                    for row in moved:
                        row.placement = [[away, row.placement[0][1]]]
                    grant.update(lease=lease.id, gpus=gpus_of(grants.pop(number).pop("placement")))
    def settle(self, limits, skips):
        renewed = sorted((row for row in self.picks.values() if "lease" in row),
                         key=lambda row: (self.due[row.job].started_us, row.lease))
        ends, terms, withdrawn = [], [], defaultdict(list)
        for term in [*renewed, *(row for row in self.picks.values() if "lease" not in row)]:
            job = self.jobs[term.job]
            if refusal := limits.check(job, term.gpu_type):
                withdrawn[refusal[0], *term.claim].append((job, refusal[1]))
                self.refused |= {(term.job, term.gpu_type): refusal[0]} if "lease" in term else {}
            else:
                terms.append(Row(term, **limits.take(term.claim, job.gpus)))
        for (reason, tenant, name), rows in sorted(withdrawn.items()):
            rows.sort(key=lambda row: row[0].arrival)
            numbers = Row(rows[0][1], gpu_type=name, withdrawn=True)
            skips.append(skip(reason, tenant, [job for job, _ in rows], numbers))
        kept = {term.get("lease") for term in terms}
        for row in (row for row in self.due.values() if row.id not in kept):
            is_gone = any(self.places[row.gpu_type].gpus.get(n, 0) < g for n, g in row.placement)
            why = "drained" if is_gone else self.refused.get((row.job, row.gpu_type))
            why = why if why in {"drained", "price_above_max", "budget"} else "not_renewed"
            ends.append(Row(lease=row.id, job=row.job, tenant=row.tenant, reason=why))
        return terms, sorted(ends, key=lambda row: row.lease)
    def answer(self):
        for step in (self.serve_reserved, self.take_turns, self.stay):
            step()
        skips, self.limits = self.reasons(), Limits(self.s, self.going)
        terms, ends = self.settle(self.limits, skips)
        tables = {name: [row for _, row in sorted(getattr(self.sums, name).items())]
                  for name in ("claims", "classes", "jobs")}
        passed = {str(n): t for n, t in self.passed.items() if n not in self.picks}
        reserved = {n: row for n, row in self.reserved.items() if row.job not in self.picks}
        memory = {"passed": passed, "reserved": reserved} if self.o.reserve_after_leases else {}
        return Row(
            skips=skips, memory={name: rows for name, rows in memory.items() if rows}, ends=ends,
            grants=[row for row in terms if "lease" not in row],
            renewals=sorted((row for row in terms if "lease" in row), key=lambda row: row.order),
            service=Row(tables, at_us=self.s.at_us))
    def reasons(self):
        skips = []
        for key, turn in self.turns.items():
            groups = defaultdict(list)
            for place, one in enumerate(turn.queue):
                if one.id not in self.picks and self.told_of(one, one.types) == key[1]:
                    reason, numbers = self.why(one, turn, self.places[key[1]])
                    others = tuple(name for name in one.types if name != key[1])
                    groups[others, reason].append((one.n, place, numbers, one))
            for (others, reason), rows in sorted(groups.items()):
                numbers = Row(min(rows, key=lambda row: row[:2])[2], gpu_type=key[1])
                numbers.update({"other_types": [*others]} if others else {})
                jobs = sorted((row[3] for row in rows), key=lambda job: job.arrival)
                skips.append(skip(reason, key[0], jobs, numbers))
        return skips
    def why(self, one, turn, places):
        n, (free, _), (start, hole), back = one.n, places.room(), places.start, places.back
        held = sum(back.values())
        most = max((places.available[node] + back[node] for node in back), default=0)
        ratios = Row(own_rho=rho(turn.a, turn.f), served_rho=self.served.get(turn.key[1]))
        return self.why_not(one, turn.key[1]) or first_of((
            ("tenant_passed_over", turn.out not in {None, one.id},
             Row(first_job=turn.out, needed=n)),
            ("reserved_for_gang", held and places.fits(n, (free + held, most)),
             Row(needed=n, free=free, held_back=held)),
            ("lease_turn", places.fits(n, places.start), Row(ratios, needed=n)),
            ("no_free_gpus", start < n, Row(needed=n, free=start)),
            ("fragmented", True, Row(needed=n, free=start, largest_hole=hole))))
def skip(reason, tenant, jobs, numbers):
    return Row(reason=reason, tenant=tenant, jobs=[job.id for job in jobs], numbers=numbers,
               gpus=sum(job.gpus for job in jobs))
