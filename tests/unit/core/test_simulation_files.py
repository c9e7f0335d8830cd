"""Test tables, pools and profiles as files: reading returns what was written."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.simulation.pool_files import (
    NamedNode,
    nodes_csv,
    number_tenants,
    quotas_csv,
    read_nodes,
    read_quotas,
)
from evenshare_core.simulation.profile_files import (
    IterationTimes,
    ProfiledModel,
    fit_profiles,
    profiles_csv,
    read_profiles,
)
from evenshare_core.simulation.tables import TableError, read_table
from evenshare_core.simulation.workloads import SimJob, Workload

NAMES = st.text("abcXYZ09-_ ,\"'äß", min_size=1, max_size=12).map(str.strip).filter(bool)
TYPES = st.sampled_from(("k80", "p100", "v100"))
LIMITS = st.none() | st.integers(0, 99)


class TestTable:
    @given(st.text(max_size=200))
    def test_any_text_is_read_or_raises_table_error(self, text: str) -> None:
        with suppress(TableError):
            for row in read_table(text, "rows", required=("a",), optional=("b",)):
                assert "a" in row.cells

    @given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=5))
    def test_round_trips(self, rows: list[tuple[str, str]]) -> None:
        found = read_table(write_csv(("a", "b"), rows), "rows", required=("a", "b"))
        assert [(row.text("a"), row.text("b")) for row in found] == rows

    def test_rejects_deeply_nested_json(self) -> None:
        with pytest.raises(TableError, match="is no JSON"):
            read_table("[" * 100_000, "rows", required=("a",))


class TestPoolFiles:
    @given(
        st.dictionaries(
            st.tuples(NAMES, TYPES),
            st.tuples(st.integers(0, 999), st.sampled_from(Mode), LIMITS, LIMITS),
            min_size=1,
            max_size=6,
        )
    )
    def test_quotas_round_trip(
        self, quotas: dict[tuple[str, str], tuple[int, Mode, int | None, int | None]]
    ) -> None:
        rows = [(name, Entitlement(0, kind, *rest)) for (name, kind), rest in quotas.items()]
        lines = read_quotas(quotas_csv(rows), None)
        assert [(line.tenant, line.quota) for line in lines] == rows

    @given(
        st.dictionaries(
            NAMES,
            st.tuples(TYPES, st.integers(1, 16), st.integers(0, 10**6), st.integers(0, 10**8)),
            min_size=1,
            max_size=6,
        )
    )
    def test_nodes_round_trip(self, nodes: dict[str, tuple[str, int, int, int]]) -> None:
        rows = [
            NamedNode(name, Node(index, kind, gpus), *resources)
            for index, (name, (kind, gpus, *resources)) in enumerate(nodes.items(), start=1)
        ]
        assert read_nodes(nodes_csv(rows)) == rows

    def test_omits_resource_columns_and_rejects_excessive_memory(self) -> None:
        rows = [NamedNode("n1", Node(1, "v100", 4))]
        assert nodes_csv(rows) == "name,gpu_type,gpus\nn1,v100,4\n"
        with pytest.raises(TableError, match="line 2, memory_mb is out of bounds"):
            read_nodes("name,gpu_type,gpus,memory_mb\nn1,v100,4,200000000\n")

    def test_numbers_tenants_with_quota_first(self) -> None:
        jobs = tuple(SimJob(id_, id_, 1, 0, 1) for id_ in (1, 2, 3))
        workload = Workload(jobs, {1: "a", 2: "b", 3: "c"})
        found = number_tenants(workload, ["c", "z", "a"])
        assert found.tenants == {1: "c", 2: "z", 3: "a", 4: "b"}
        assert [job.tenant for job in found.jobs] == [3, 4, 1]


def job(id_: int, gpus: int, model: str = "m", tenant: int = 1) -> SimJob:
    return SimJob(id_, tenant, gpus, 0, 1, name=f"j{id_}", model=model)


TIMES = ProfiledModel(
    "",
    "m",
    {
        "k80": IterationTimes(Decimal("0.8"), Decimal("0.1"), Decimal("0.4")),
        "v100": IterationTimes(Decimal("0.2"), Decimal("0.1"), Decimal("0.6")),
    },
)


class TestProfiles:
    @pytest.mark.parametrize(
        ("gpus", "v100", "spread"),
        [
            (1, 4000, ()),  # 0.8 / 0.2
            (2, 3000, (("k80", 750), ("v100", 375))),  # 0.9 / 0.3; 0.9 / 1.2 and 0.3 / 0.8
            (4, 2200, (("k80", 550), ("v100", 250))),  # 1.1 / 0.5; 1.1 / 2.0 and 0.5 / 2.0
            # over several nodes, v100 makes 3.6 / 4.4, so it is the slower type there
            (8, 818, (("k80", 417), ("v100", 205))),
        ],
    )
    def test_fit_matches_unisched_equation_2(
        self, gpus: int, v100: int, spread: tuple[tuple[str, int], ...]
    ) -> None:
        speedups = dict(TIMES.speedups(gpus, {"k80": 4, "v100": 4}))
        slow = "v100" if gpus == 8 else "k80"
        assert speedups[slow] == 1000
        assert speedups["v100"] * 1000 // speedups["k80"] == v100
        assert TIMES.spread(gpus) == spread

    def test_fits_one_profile_per_job_type_tenant_and_speeds(self) -> None:
        jobs = (job(1, 4), job(2, 1), job(3, 1, tenant=2), job(4, 1), job(5, 1, ""))
        fitted, profiles = fit_profiles(jobs, {1: "a", 2: "b"}, [TIMES], {"k80": 4, "v100": 4})
        assert [one.profile for one in fitted] == [1, 2, 3, 2, 0]
        assert [row.tenant for row in profiles.values()] == [1, 1, 2]

    @given(
        st.dictionaries(
            NAMES, st.dictionaries(TYPES, st.integers(1000, 9_999), min_size=1), min_size=1
        )
    )
    def test_declared_profiles_round_trip(self, declared: dict[str, dict[str, int]]) -> None:
        for speedups in declared.values():
            speedups[min(speedups)] = 1000  # the slowest type, to which the others are relative
        rows = [("a", model, speedups, 3) for model, speedups in declared.items()]
        found = read_profiles(profiles_csv(rows))
        assert [(one.tenant, one.model, one.priority) for one in found] == [
            ("a", model, 3) for model in declared
        ]
        for one in found:
            assert dict(one.speedups(7, {})) == declared[one.model]
