"""Test the rules of evenshare on hand-made pools, one class per rule."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.evenshare.policy import POLICY
from evenshare_core.units import SECOND_US
from tests.papers.evenshare_pools import AT_US, pool, running
from tests.unit.core.snapshots import job

HALVES = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]


def starts(decision: Decision) -> list[int]:
    """Return jobs in the order of their grants."""
    return [row.job for row in sorted(decision.grants, key=lambda row: row.order)]


def ended(decision: Decision) -> dict[int, tuple[EndReason, PreemptionRule | None]]:
    """Return, by job, the reason and rule by which its lease ended."""
    rules = {row.lease: row.rule for row in decision.preemptions}
    return {end.job: (end.reason, rules.get(end.lease)) for end in decision.ends}


class TestRule1TenantOrder:
    """key = (A + granted this round) / (F + 300 s x min(D, Q))."""

    def test_serves_lowest_key_first(self) -> None:
        jobs = [job(1, 1), job(2, 1, tenant=2)]
        sums = {1: (9_000, 10_000), 2: (5_000, 10_000)}
        asked = pool(jobs, nodes={1: 8}, quotas=HALVES, sums=sums)
        decision = decide_round(asked)
        assert starts(decision) == [2, 1]
        assert decision.grants[0].key.tenant_rho == 5_000 / (10_000 + 300)

    def test_grant_counts_whole_lease_within_round(self) -> None:
        """Tenant 1's key is 0 / 1,200, then 900 / 1,200; from 1,800 / 1,200 on, rule 2 decides."""
        jobs = [job(number, 1) for number in (1, 2, 3, 4)] + [job(5, 1, tenant=2)]
        sums = {2: (900, 1_000)}
        decision = decide_round(pool(jobs, nodes={1: 8}, quotas=HALVES, sums=sums))
        assert starts(decision) == [1, 5, 2, 3, 4]
        notes = {row.job: row.key.note for row in decision.grants}
        assert [notes[number] for number in (1, 5, 2, 3, 4)] == ["", "", "", *["left over"] * 2]

    def test_leftover_gpus_ignore_tenant_history(self) -> None:
        jobs = [job(1, 1), job(2, 1), job(3, 1, tenant=2)]
        sums = {1: (20_000, 10_000), 2: (11_000, 10_000)}
        asked = pool(jobs, nodes={1: 8}, quotas=HALVES, sums=sums, attained={1: 50, 2: 5, 3: 20})
        assert starts(decide_round(asked)) == [2, 3, 1]


class TestRule2JobOrder:
    def test_least_attained_gpu_time_goes_first(self) -> None:
        jobs = [job(1, 1), job(2, 2), job(3, 1)]
        asked = pool(jobs, nodes={1: 8}, attained={1: 300, 2: 200, 3: 100})
        assert starts(decide_round(asked)) == [3, 2, 1]

    def test_renewing_job_counts_half_attained_time(self) -> None:
        """Job 2 renews with 800 GPU-s, which count as 400; jobs 1 and 3 wait with 500 and 300."""
        jobs = [job(1, 1), job(2, 1), job(3, 1)]
        due = running(2, 1, 1, ran_s=800, expires_us=AT_US)
        for gpus, given in ((1, [3]), (2, [3, 2])):
            decision = decide_round(pool(jobs, [due], nodes={1: gpus}, attained={1: 500, 3: 300}))
            orders = {row.order: row.job for row in decision.grants}
            orders |= {row.order: row.job for row in decision.renewals}
            assert [orders[one] for one in sorted(orders)] == given

    def test_long_jobs_come_last_ordered_by_lag(self) -> None:
        """All jobs are an hour old; four weights share 4 GPUs, so each job deserves 3,600 GPU-s.

        (3,200 - 3,600) / 1 = -400; (3,000 - 3,600) / 2 = -300; (3,400 - 3,600) / 1 = -200.
        """
        jobs = [job(1, 1), job(2, 2), job(3, 1), job(4, 1)]
        attained = {1: 3_200, 2: 3_000, 3: 3_400, 4: 2_699}
        asked = pool(jobs, nodes={1: 8}, quotas=HALVES, attained=attained)
        assert starts(decide_round(asked)) == [4, 1, 2, 3]
        assert POLICY.queue_order(asked) == (4, 1, 2, 3)

    def test_long_job_deserves_nothing_before_arrival(self) -> None:
        """Job 1 came an hour ago and is 100 s behind.

        Job 2 came half an hour ago and is 901 s ahead.
        """
        late = AT_US // 2  # the time of submission, also used as the id
        jobs = [job(1, 1), job(late, 1)]
        asked = pool(jobs, nodes={1: 8}, quotas=HALVES, attained={1: 3_500, late: 2_701})
        assert starts(decide_round(asked)) == [1, late]

    def test_renewing_long_job_is_credited_one_lease(self) -> None:
        """Four GPUs by weights of 3, 1 and 1: jobs deserve 7,200, 2,880 and 2,880 GPU-s.

        Job 3 is 100 s ahead; minus its lease of 900 s it is 800 s behind. Job 1 is 799 s, then 801
        s behind.
        """
        jobs = [job(1, 2, weight=3), job(2, 2), job(3, 2)]
        due = running(3, 1, 2, expires_us=AT_US)
        for behind_s, given in ((799, 3), (801, 1)):
            attained = {1: 7_200 - 2 * behind_s, 2: 2_880, 3: 2_880 + 2 * 100}
            asked = pool(jobs, [due], nodes={1: 2}, quotas=HALVES, attained=attained)
            decision = decide_round(asked)
            served = [row.job for row in decision.grants]
            assert [*served, *(row.job for row in decision.renewals)] == [given]

    def test_estimates_prefer_soonest_covered_by_fair_share(self) -> None:
        """(d E - FairTime) / min(d, FairShare): all jobs are an hour old, FairShare is 4/3 GPUs.

        (1,000 - 3,600) / 1 = -2,600; (1,800 - 4,800) / (4/3) = -2,250; (950 - 3,600) / 1 = -2,650.
        """
        jobs = [
            job(1, 1, estimate_us=1_000 * SECOND_US),
            job(2, 2, estimate_us=900 * SECOND_US),
            job(3, 1, estimate_us=950 * SECOND_US),
        ]
        asked = pool(jobs, nodes={1: 8}, attained={3: 900}, options={"estimates": "given"})
        assert starts(decide_round(asked)) == [3, 1, 2]

    def test_overrun_job_needs_twentieth_of_estimate(self) -> None:
        jobs = [job(1, 1, estimate_us=1_000 * SECOND_US), job(2, 1, estimate_us=60 * SECOND_US)]
        asked = pool(jobs, nodes={1: 1}, attained={1: 5_000, 2: 0}, options={"estimates": "given"})
        assert starts(decide_round(asked)) == [2]


class TestRule3Placement:
    def test_renewal_keeps_gpus_and_new_job_takes_best_fit(self) -> None:
        jobs = [job(1, 2), job(2, 3), job(3, 2)]
        leases = [running(1, 1, 2, expires_us=AT_US), running(2, 2, 3)]
        decision = decide_round(pool(jobs, leases, nodes={1: 8, 2: 5, 3: 8}))
        assert [(row.job, row.placement) for row in decision.grants] == [(3, ((2, 2),))]
        assert [row.lease for row in decision.renewals] == [1]

    def test_skips_larger_sizes_after_one_fails(self) -> None:
        """A gang of 2 fits on no node, so a gang of 5 does not take single GPUs of many nodes."""
        jobs = [job(1, 1), job(2, 1), job(3, 2), job(4, 5), job(5, 1)]
        leases = [running(1, 1, 1, ran_s=100), running(2, 2, 1, ran_s=100)]
        nodes = {1: 2, 2: 2, 3: 1, 4: 1, 5: 1}
        assert starts(decide_round(pool(jobs, leases, nodes=nodes))) == [5]
        without = [one for one in jobs if one.id != 3]
        assert starts(decide_round(pool(without, leases, nodes=nodes))) == [4]

    def test_job_of_any_type_uses_type_with_room(self) -> None:
        quotas = [Entitlement(1, "v100", 2), Entitlement(1, "k80", 2)]
        asked = pool([job(1, 2), job(2, 2, gpu_types=("v100", "k80"))], nodes={1: 2}, quotas=quotas)
        mixed = replace(asked, nodes=(*asked.nodes, Node(2, "k80", 2)))
        decision = decide_round(mixed)
        assert [(row.job, row.gpu_type) for row in decision.grants] == [(1, "v100"), (2, "k80")]


class TestJobWithoutUsableType:
    def test_waits_without_blocking_others(self) -> None:
        """The job's profile has no speed on the only type that the job accepts."""
        nowhere = replace(job(1, 1), gpu_types=("v100",), profile=1)
        jobs = [nowhere, job(2, 1, tenant=2)]
        profiles = (Profile(1, 1, (("k80", 1_000),)),)
        decision = decide_round(pool(jobs, nodes={1: 8}, quotas=HALVES, profiles=profiles))
        assert starts(decision) == [2]
        assert [skip.jobs for skip in decision.skips] == [(1,)]


class TestGuaranteeOnOneNode:
    def asked(self, sums: tuple[int, int], ran_s: int = 400, **options: Any) -> Decision:
        """Decide a round: tenant 2 has all 8 GPUs in two leases, tenant 1 requests its quota, 4."""
        jobs = [job(1, 4), job(2, 4, tenant=2), job(3, 4, tenant=2)]
        leases = [running(2, 1, 4, 2, ran_s), running(3, 2, 4, 2, ran_s + 5)]
        asked = pool(
            jobs, leases, nodes={1: 4, 2: 4}, quotas=HALVES, sums={1: sums}, attained={1: 60},
            options=options,
        )  # fmt: skip
        return decide_round(asked)

    def test_preempts_tenant_above_quota_for_one_owed(self) -> None:
        decision = self.asked((900, 1_000))
        assert starts(decision) == [1]
        assert ended(decision) == {3: (EndReason.PREEMPTED, PreemptionRule.GUARANTEE)}
        (row,) = decision.preemptions
        assert (row.for_job, row.numbers["received_gpu_us"]) == (1, 900 * SECOND_US)
        assert [skip.jobs for skip in decision.skips] == [(3,)]

    def test_spares_others_if_95_percent_was_received(self) -> None:
        assert not self.asked((950, 1_000)).preemptions

    def test_respects_minimum_runtime_and_option(self) -> None:
        assert not self.asked((900, 1_000), ran_s=290).preemptions
        assert not self.asked((900, 1_000), guarantee=False).preemptions

    def test_spares_tenant_that_would_fall_below_quota(self) -> None:
        """Tenant 2 holds 6 GPUs in leases of 3, and may lose only 2."""
        jobs = [job(1, 3), job(2, 3, tenant=2), job(3, 3, tenant=2)]
        leases = [running(2, 1, 3, 2), running(3, 2, 3, 2)]
        asked = pool(jobs, leases, nodes={1: 3, 2: 3}, quotas=HALVES, sums={1: (0, 1_000)})
        assert not decide_round(asked).preemptions

    def test_does_not_apply_above_own_quota(self) -> None:
        jobs = [job(1, 5), job(2, 8, tenant=2)]
        asked = pool(
            jobs, [running(2, 1, 8, 2)], nodes={1: 8}, quotas=HALVES, attained={1: 1},
            sums={1: (0, 1_000)},
        )  # fmt: skip
        assert not decide_round(asked).preemptions

    def test_keeps_preemption_if_withdrawal_frees_gpu(self) -> None:
        """Job 5 is picked within quota and withdrawn, since job 4's lease fills the quota first.

        When job 3's lease was ended for job 6, no GPU was free; after the withdrawal, job 5's GPU
        is free.
        """
        jobs = [
            job(2, 4, 3),
            job(3, 1, 3),
            job(4, 2, 2),
            job(5, 1, 2, max_price_micro=0),
            job(6, 1),
        ]
        leases = [
            running(2, 1, 4, 3),
            running(3, 1, 1, 3),
            running(4, 1, 2, 2, 900, expires_us=AT_US),
        ]
        quotas = [Entitlement(1, "v100", 2), Entitlement(2, "v100", 2), Entitlement(3, "v100", 4)]
        sums = {1: (5_000, 10_000), 2: (0, 10_000), 3: (12_000, 10_000)}
        decision = decide_round(
            pool(jobs, leases, nodes={1: 8}, quotas=quotas, sums=sums, price_micro=5)
        )
        assert [grant.job for grant in decision.grants] == [6]
        assert [(row.lease, row.for_job) for row in decision.preemptions] == [(3, 6)]
        withdrawn = [row.jobs for row in decision.skips if row.numbers.get("withdrawn")]
        assert withdrawn == [(5,)]


class TestRule5Payback:
    def asked(self, attained: dict[int, int], **options: Any) -> Decision:
        """Decide a round of one tenant: job 1 never ran, and jobs 2 and 3 hold the two GPUs."""
        estimates = {1: 100, 2: 1_000, 3: 800}
        jobs = [job(one, 1, estimate_us=s * SECOND_US) for one, s in estimates.items()]
        leases = [running(2, 1, 1), running(3, 1, 1)]
        asked = pool(jobs, leases, nodes={1: 2}, attained=attained, options=options)
        return decide_round(asked)

    def test_new_job_preempts_long_running_job(self) -> None:
        decision = self.asked({2: 2_800, 3: 9_000})
        assert ended(decision) == {3: (EndReason.PREEMPTED, PreemptionRule.PAYS)}
        assert decision.preemptions[0].numbers == {
            "threshold_gpu_us": 2_700 * SECOND_US, "attained_gpu_us": 9_000 * SECOND_US,
        }  # fmt: skip

    def test_requires_new_job_and_long_running_victims(self) -> None:
        assert not self.asked({2: 2_700, 3: 2_000}).preemptions
        assert not self.asked({1: 1, 2: 9_000, 3: 9_000}).preemptions
        assert not self.asked({2: 9_000, 3: 9_000}, pays=False).preemptions

    def test_estimates_require_victim_with_twice_the_need(self) -> None:
        """2 x (100 + 60) = 320: jobs 2 and 3 still need 330 and 320."""
        decision = self.asked({2: 670, 3: 480}, estimates="given")
        assert ended(decision) == {2: (EndReason.PREEMPTED, PreemptionRule.PAYS)}
        assert not self.asked({2: 680, 3: 480}, estimates="given").preemptions


class TestRule6Defragmentation:
    JOBS = (job(1, 2), job(2, 1), job(3, 2), job(4, 4))
    LEASES = (running(1, 1, 2), running(2, 1, 1), running(3, 2, 2))

    def test_moves_small_jobs_for_gang(self) -> None:
        """5 GPUs are free, at most 2 per node; node 2 needs one move, node 1 would need two."""
        decision = decide_round(pool(self.JOBS, self.LEASES, nodes={1: 4, 2: 4, 3: 2}))
        assert ended(decision) == {3: (EndReason.MOVED, PreemptionRule.DEFRAGMENT)}
        places = {row.job: row.placement for row in decision.grants}
        assert places == {3: ((3, 2),), 4: ((2, 4),)}
        assert {row.key.note for row in decision.grants} == {"moved", "defragmented"}

    def test_moves_nothing_if_off_or_without_room(self) -> None:
        for options in ({"gangs_per_round": 0}, {"moves_per_round": 0}):
            asked = pool(self.JOBS, self.LEASES, nodes={1: 4, 2: 4, 3: 2}, options=options)
            assert not decide_round(asked).preemptions
        assert not decide_round(pool(self.JOBS, self.LEASES, nodes={1: 3, 2: 4, 3: 1})).preemptions

    def test_does_not_move_larger_jobs(self) -> None:
        jobs = [job(1, 3), job(2, 3), job(3, 4)]
        leases = [running(1, 1, 3), running(2, 2, 3)]
        assert not decide_round(pool(jobs, leases, nodes={1: 5, 2: 5, 3: 3})).preemptions


class TestGangsThatOvertake:
    """A gang of 8 on nodes of 4, each with a lease of 4 of tenant 2, which holds 12."""

    JOBS = (job(1, 8), job(2, 4, tenant=2), job(3, 4, tenant=2), job(4, 4, tenant=2))
    LEASES = tuple(running(number, number - 1, 4, 2) for number in (2, 3, 4))
    NODES = {1: 4, 2: 4, 3: 4}
    LONG = {2: 2_700, 3: 9_000, 4: 2_699}

    def asked(self, attained: dict[int, int] | None = None, **options: Any) -> Decision:
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]
        return decide_round(
            pool(
                self.JOBS, self.LEASES, nodes=self.NODES, quotas=quotas, sums={1: (2, 1)},
                attained={1: 0, **(attained or self.LONG)}, options=options,
            )
        )  # fmt: skip

    def test_gang_preempts_long_jobs_on_several_nodes(self) -> None:
        decision = self.asked()
        assert [(row.job, row.placement) for row in decision.grants] == [(1, ((1, 4), (2, 4)))]
        assert decision.grants[0].key.note == "large gang"
        preempted = (EndReason.PREEMPTED, PreemptionRule.GANG)
        assert ended(decision) == {2: preempted, 3: preempted}
        (first, _) = decision.preemptions
        assert first.numbers == {
            "threshold_gpu_us": 2_700 * SECOND_US, "attained_gpu_us": 2_700 * SECOND_US
        }  # fmt: skip

    def test_spares_jobs_that_received_little(self) -> None:
        assert not self.asked({2: 2_699, 3: 9_000, 4: 2_699}).preemptions

    def test_preempts_nothing_when_off(self) -> None:
        assert not self.asked(gangs_overtake=False).preemptions
        assert not self.asked(preset="tight").preemptions

    def test_spares_tenants_that_would_fall_below_share(self) -> None:
        """Tenant 2 may lose 12 - 5 = 7 GPUs, so only one lease of 4 may end."""
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 5)]
        asked = pool(
            self.JOBS, self.LEASES, nodes=self.NODES, quotas=quotas, sums={1: (2, 1)},
            attained={1: 0, **self.LONG},
        )  # fmt: skip
        assert not decide_round(asked).preemptions

    def test_own_tenant_may_fall_below_share(self) -> None:
        """The tenant holds no GPUs above its share, so only the order of its jobs decides."""
        jobs = [job(1, 8), job(2, 4), job(3, 4)]
        leases = [running(2, 1, 4), running(3, 2, 4)]
        quotas = [Entitlement(1, "v100", 8)]
        attained = {1: 0, 2: 2_700, 3: 2_700}
        asked = pool(
            jobs, leases, nodes={1: 4, 2: 4}, quotas=quotas, sums={1: (2, 1)}, attained=attained
        )
        assert ended(decide_round(asked)).keys() == {2, 3}

    def test_long_gang_waits_until_ahead_in_order(self) -> None:
        """All jobs are an hour old: the gang deserves 4 x 3,600 GPU-s, each of the others 4,800.

        The others are (9,000 - 4,800) / 4 = 1,050 s ahead; minus a lease of 900 s, that is 150 s.
        """
        for ahead_s, count in ((149, 2), (151, 0)):
            attained = {1: 4 * 3_600 + 8 * ahead_s, 2: 9_000, 3: 9_000, 4: 9_000}
            assert len(self.asked(attained).preemptions) == count

    def test_picks_nodes_with_most_gpus_and_fewest_leases(self) -> None:
        """Node 1 gives 4 GPUs of 4 leases, nodes 2 and 3 give 4 of one lease; node 4 gives 3."""
        jobs = [job(1, 8), *(job(number, 1, tenant=2) for number in (2, 3, 4, 5))]
        jobs += [job(6, 4, tenant=2), job(7, 4, tenant=2), job(8, 3, tenant=2), job(9, 1, tenant=2)]
        leases = [running(number, 1, 1, 2) for number in (2, 3, 4, 5)]
        leases += [running(6, 2, 4, 2), running(7, 3, 4, 2), running(8, 4, 3, 2)]
        leases.append(running(9, 4, 1, 2, ran_s=299))
        asked = pool(
            jobs, leases, nodes={1: 4, 2: 4, 3: 4, 4: 4}, sums={1: (2, 1)},
            quotas=[Entitlement(1, "v100", 4), Entitlement(2, "v100", 0)],
            attained={1: 0, **dict.fromkeys(range(2, 10), 3_000)},
        )  # fmt: skip
        decision = decide_round(asked)
        assert [row.placement for row in decision.grants] == [((2, 4), (3, 4))]
        assert ended(decision).keys() == {6, 7}

    def test_leftover_gpus_of_cleared_node_stay_idle(self) -> None:
        """The gang of 5 takes 4 and 1 GPUs. Job 8 does not get one of the three that are left."""
        jobs = [job(1, 5), job(6, 4, tenant=2), job(7, 4, tenant=2), job(8, 1, tenant=2)]
        asked = pool(
            jobs, [running(6, 1, 4, 2), running(7, 2, 4, 2)], nodes={1: 4, 2: 4},
            quotas=[Entitlement(1, "v100", 4), Entitlement(2, "v100", 0)], sums={1: (2, 1)},
            attained={1: 0, 6: 3_000, 7: 3_000, 8: 10},
        )  # fmt: skip
        decision = decide_round(asked)
        assert [(row.job, row.placement) for row in decision.grants] == [(1, ((1, 4), (2, 1)))]

    def test_guarantee_clears_several_nodes(self) -> None:
        """If a tenant is owed its quota, the GPU-time of the preempted jobs does not matter."""
        quotas = [Entitlement(1, "v100", 8), Entitlement(2, "v100", 4)]
        few = dict.fromkeys((2, 3, 4), 1_600)
        for sums, count in (((900, 1_000), 2), ((950, 1_000), 0)):
            asked = pool(
                self.JOBS, self.LEASES, nodes=self.NODES, quotas=quotas, sums={1: sums},
                attained={1: 60, **few},
            )  # fmt: skip
            decision = decide_round(asked)
            rules = [row.rule for row in decision.preemptions]
            assert rules == [PreemptionRule.GUARANTEE] * count
            off = replace(asked, options={"guarantee": False})
            assert not decide_round(off).preemptions


class TestTightPreset:
    TIGHT = {"preset": "tight"}

    def test_serves_tenant_below_quota_despite_history(self) -> None:
        """Tenant 1 received twice what it deserved and holds nothing.

        Tenant 2 received nothing and holds 4 GPUs.
        """
        jobs = [job(1, 1), job(2, 4, tenant=2), job(3, 1, tenant=2)]
        asked = pool(
            jobs, [running(2, 1, 4, 2)], nodes={1: 5}, quotas=HALVES,
            sums={1: (2_000, 1_000), 2: (0, 1_000)}, attained={1: 9, 3: 0}, options=self.TIGHT,
        )  # fmt: skip
        assert starts(decide_round(asked)) == [1]
        assert starts(decide_round(replace(asked, options={}))) == [3]

    def test_guarantee_ignores_history_and_waits_one_minute(self) -> None:
        jobs = [job(1, 4), job(2, 8, tenant=2)]
        for ran_s, count in ((59, 0), (60, 1)):
            lease = replace(
                running(2, 1, 8, 2, ran_s), protected_until_us=AT_US + (60 - ran_s) * SECOND_US
            )
            quotas = [Entitlement(1, "v100", 8), Entitlement(2, "v100", 0)]
            asked = pool(
                jobs, [lease], nodes={1: 8}, quotas=quotas, sums={1: (2_000, 1_000)},
                options=self.TIGHT,
            )  # fmt: skip
            assert len(decide_round(asked).preemptions) == count

    def test_only_guarantee_preempts(self) -> None:
        jobs = [job(1, 1), job(2, 1)]
        asked = pool(jobs, [running(2, 1, 1)], nodes={1: 1}, attained={2: 9_000})
        assert decide_round(asked).preemptions
        assert not decide_round(replace(asked, options=self.TIGHT)).preemptions
