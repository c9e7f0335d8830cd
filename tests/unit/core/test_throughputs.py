"""Test measured throughputs as profiles of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenshare_core.simulation.throughputs import Speeds, SpeedsError, make_profiles, read_speeds
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import SECOND_US

DATA = Path(__file__).resolve().parents[2] / "data"
TYPES = ("k80", "p100", "v100")
LARGE = "ResNet-50 (batch size 128)"  # the model does not fit in the memory of several K80s
HEAD = "job_type,scale,k80,v100\n"


def gavel() -> Speeds:
    with (DATA / "gavel_slice.csv").open() as file:
        return read_speeds(file)


def job(id_: int, gpus: int, model: str, **fields: object) -> SimJob:
    return SimJob(id_, 1, gpus, 0, SECOND_US, model=model, name=f"j{id_}", **fields)  # type: ignore[arg-type]  # the test names the fields


class TestSpeedups:
    def test_are_thousandths_relative_to_slowest_type(self) -> None:
        # 0.6190282202246573, 2.6194694075770055 and 4.394774823323071 steps per second.
        name = "ResNet-50 (batch size 64)"
        assert gavel().speedups(name, 1, TYPES) == (("k80", 1000), ("p100", 4232), ("v100", 7099))
        assert gavel().speedups(name, 1, ("v100", "p100")) == (("p100", 1000), ("v100", 1678))

    def test_omit_types_that_cannot_run_model(self) -> None:
        found = gavel().speedups(LARGE, 2, TYPES)
        assert found[0] == ("p100", 1000)
        assert dict(found).keys() == {"p100", "v100"}

    def test_use_largest_measured_scale_up_to_gang_size(self) -> None:
        assert [gavel().scale(LARGE, gpus) for gpus in (1, 3, 16)] == [1, 2, 8]
        assert gavel().scale("A3C", 16) == 1

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("model,k80\n", "job_type"),
            ("job_type,scale\n", "per GPU type"),
            (HEAD + "a,x,1,1\n", "line 2: the scale"),
            (HEAD + "a,0,1,1\n", "line 2: the scale"),
            (HEAD + "a,1,1,1\na,1,1,1\n", "line 3: 'a' on 1 is repeated"),
            (HEAD + "a,1,-1,1\n", "line 2: '-1' is not a throughput"),
            (HEAD + "a,1,nan,1\n", "line 2: 'nan' is not a throughput"),
        ],
    )
    def test_reject_invalid_file(self, text: str, says: str) -> None:
        with pytest.raises(SpeedsError, match=says):
            read_speeds(text.splitlines(keepends=True))


class TestProfiles:
    def test_are_one_per_tenant_model_and_scale(self) -> None:
        rows = [job(1, 1, "A3C"), job(2, 8, "A3C"), job(3, 1, LARGE), job(4, 2, LARGE)]
        jobs, profiles = make_profiles([*rows, job(5, 1, "")], gavel(), TYPES)
        assert [one.profile for one in jobs] == [1, 1, 2, 3, 0]
        assert {row.tenant for row in profiles.values()} == {1}

    def test_restrict_job_to_types_that_can_run_it(self) -> None:
        rows = [job(1, 1, LARGE), job(2, 2, LARGE), job(3, 2, LARGE, gpu_types=("k80", "v100"))]
        jobs, _ = make_profiles(rows, gavel(), TYPES)
        assert [one.gpu_types for one in jobs] == [(), ("p100", "v100"), ("v100",)]

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            (job(1, 1, "BERT"), "no speeds of model 'BERT'"),
            (job(1, 2, LARGE, gpu_types=("k80",)), "job 'j1'"),
        ],
    )
    def test_error_names_mismatch_of_job(self, wrong: SimJob, says: str) -> None:
        with pytest.raises(SpeedsError, match=says):
            make_profiles([wrong], gavel(), TYPES)

    def test_require_a_type_that_can_run_model(self) -> None:
        with pytest.raises(SpeedsError, match="runs on none of k80"):
            make_profiles([job(1, 2, LARGE)], gavel(), ("k80",))
