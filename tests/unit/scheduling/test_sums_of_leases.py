"""Sums that were told by claimed types, told anew by the types that leases held."""

from __future__ import annotations

from msgspec.structs import replace

from evenshare_core.domain.snapshot import Change, ChangeKind, Service, ServiceMark
from evenshare_core.fairness.gpu_time import advance
from scheduling.engine.sums_of_leases import PastHold, sums_of_leases

K = ChangeKind
ANY: tuple[str, ...] = ()


def sums(changes: list[Change]) -> Service:
    """Two types, of which tenant 1 has 4 GPUs each; time ends at 100."""
    quotas = [Change(0, K.QUOTA, 1, gpus=4, gpu_types=(name,)) for name in ("k80", "v100")]
    return advance(Service(0), [*quotas, *changes], 100, capacity={"k80": 4, "v100": 4})


def received(service: Service) -> dict[str, int]:
    return {row.gpu_type: row.alloc_gpu_us for row in service.claims}


# As before: the holds told no type, so they counted on the K80 that both jobs claimed.
OLD = [
    Change(0, K.ACTIVE, 1, 7, 2, ("k80",)),
    Change(10, K.HOLD, 1, 7, 2),
    Change(0, K.ACTIVE, 1, 8, 3, ("k80",)),
    Change(20, K.HOLD, 1, 8, 3),
    Change(50, K.RELEASE, 1, 8),
]
HOLDS = [PastHold(1, 7, "k80", 2, 10, None), PastHold(1, 8, "v100", 3, 20, 50)]


class TestSumsOfLeases:
    def test_received_counts_on_the_type_of_the_lease(self) -> None:
        old = sums(sorted(OLD, key=lambda change: change.at_us))
        assert received(old) == {"k80": 180 + 90, "v100": 0}
        new = sums_of_leases(old, HOLDS)
        assert received(new) == {"k80": 180, "v100": 90}
        assert [(row.fair_gpu_us, row.demand) for row in new.claims] == [(400, 5), (0, 0)]

    def test_a_job_that_holds_another_type_claims_it_from_now_on(self) -> None:
        old = sums(sorted(OLD, key=lambda change: change.at_us))
        new = sums_of_leases(old, [PastHold(1, 7, "v100", 2, 10, None)])
        claims = {row.gpu_type: (row.demand, row.held) for row in new.claims}
        assert claims == {"k80": (3, 0), "v100": (2, 2)}
        (row,) = [row for row in new.jobs if row.job == 7]
        assert (row.gpu_type, row.held, row.alloc_gpu_us) == ("v100", 2, 180)

    def test_a_lease_that_begins_as_the_sums_end_is_for_the_next_round(self) -> None:
        old = sums(sorted(OLD, key=lambda change: change.at_us))
        holds = [PastHold(1, 7, "k80", 2, 10, 100), PastHold(1, 7, "v100", 2, 100, None)]
        assert sums_of_leases(old, holds).jobs == old.jobs

    def test_a_tenant_that_never_claimed_the_type_gets_a_row(self) -> None:
        service = advance(Service(0), [Change(0, K.QUOTA, 1, gpus=1, gpu_types=("k80",))], 100)
        new = sums_of_leases(service, [PastHold(2, 9, "v100", 4, 90, 95)])
        assert [(row.tenant, row.gpu_type, row.alloc_gpu_us) for row in new.claims] == [
            (1, "k80", 0),
            (2, "v100", 20),
        ]

    def test_marks_of_a_window_follow(self) -> None:
        old = sums(sorted(OLD, key=lambda change: change.at_us))
        marks = (ServiceMark(0, 0, 0, 0), ServiceMark(60, 190, 240, 240))
        claims = tuple(replace(row, marks=marks) for row in old.claims)
        new = sums_of_leases(replace(old, claims=claims), HOLDS)
        assert [row.marks[0] for row in new.claims] == [marks[0], marks[0]]
        assert [row.marks[1] for row in new.claims] == [
            ServiceMark(60, 100, 240, 240),
            ServiceMark(60, 90, 240, 240),
        ]
