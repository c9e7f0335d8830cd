"""Test the errors of `simulate` about a pool's files and options, with place, field and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import CommandError

from tests.simulation.simulate_runs import GAVEL, JOBS, ONE, QUOTAS, WITH_MODEL, Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def refused(runs: Runs, option: str, content: str, *args: str) -> str:
    path = runs.folder / "wrong.csv"
    path.write_text(content)
    with pytest.raises(CommandError) as raised:
        runs.run(
            *(args or (*runs.trace("a1,a,1,0,100,m", header=WITH_MODEL), *ONE)), option, str(path)
        )
    return str(raised.value).replace(str(path), "FILE")


class TestRefusals:
    @pytest.mark.parametrize(
        ("option", "content", "says"),
        [
            ("--quotas", "", "FILE: is empty; the first line names the columns: tenant"),
            ("--quotas", QUOTAS, "FILE: has no row of quotas"),
            ("--quotas", "tenant,gpus\na,1", "line 1: needs gpu_type"),
            ("--quotas", f"{QUOTAS},colour\na,gpu,1,red", "line 1: does not know 'colour'; known"),
            ("--quotas", f"{QUOTAS},gpus\na,gpu,1,1", "line 1: a column is repeated"),
            ("--quotas", f"{QUOTAS}\na,gpu", "line 2 has 2 cells, the header has 3"),
            ("--quotas", f'{QUOTAS}\na,"gpu,1', "line 2 is not CSV"),
            ("--quotas", f"{QUOTAS}\n,gpu,1", "line 2, tenant is empty; name one"),
            ("--quotas", f"{QUOTAS}\na,,1", "line 2, gpu_type is empty; name one"),
            ("--quotas", f"{QUOTAS}\na,g p u,1", "line 2, gpu_type is not a name of a GPU type"),
            ("--quotas", f"{QUOTAS}\na,gpu,", "line 2, gpus is empty; use a whole number"),
            (
                "--quotas",
                f"{QUOTAS}\na,gpu,-1",
                "line 2, gpus is not a whole number: '-1'; use 0 to",
            ),
            ("--quotas", f"{QUOTAS}\na,gpu,1.5", "line 2, gpus is not a whole number: '1.5'"),
            ("--quotas", f"{QUOTAS}\na,gpu,9999999", "line 2, gpus is out of bounds"),
            (
                "--quotas",
                f"{QUOTAS}\na,v100,1",
                "line 2, gpu_type has no node: 'v100'; the nodes",
            ),
            (
                "--quotas",
                f"{QUOTAS}\na,gpu,1\na,gpu,2",
                "line 3, tenant has a quota of this type already",
            ),
            (
                "--quotas",
                f"{QUOTAS},mode\na,gpu,1,KEEP",
                "line 2, mode is unknown: 'KEEP'; use one of",
            ),
            (
                "--quotas",
                f"{QUOTAS},lend_limit\na,gpu,1,all",
                "line 2, lend_limit is not a whole number",
            ),
            ("--quotas", f"{QUOTAS},pool\na,gpu,1,x\nb,gpu,1,y", "line 3, pool differs from the"),
            ("--quotas", f"{QUOTAS},until\na,gpu,1,soon", "line 2, until needs --start"),
            ("--quotas", "[", "FILE: is no JSON"),
            ("--quotas", "{}", "FILE: needs a list of objects, at the top or under 'quotas'"),
            ("--quotas", '[{"tenant": "a", "gpus": 1}]', "row 1: needs gpu_type"),
            ("--quotas", '[{"tenant": "a", "tenant": "b"}]', "names 'tenant' twice"),
            (
                *("--quotas", '[{"tenant": "a", "gpu_type": "gpu", "gpus": true}]'),
                "row 1, 'gpus' is neither text nor a number",
            ),
            (
                *("--quotas", '[{"tenant": "a", "gpu_type": "gpu", "gpus": NaN}]'),
                "row 1, gpus is not a whole number: 'NaN'",
            ),
            ("--prices", "gpu_type,base,theta\nv100,1,2", "no node has GPUs of type 'v100'"),
            ("--prices", "gpu_type,base,theta\ngpu,-1,2", "line 2, base is out of bounds: '-1'"),
            (
                "--prices",
                "gpu_type,base,theta\ngpu,1e3,2",
                "line 2, base is not such a number: '1e3'",
            ),
            ("--prices", "gpu_type,base,theta\ngpu,1,0.5", "line 2, theta is out of bounds"),
            (
                "--prices",
                "gpu_type,base,theta,surcharge_cap,surcharge_step\ngpu,1,2,3,200",
                "line 2, surcharge_step is out of bounds: '200'; use 0.1 to 100",
            ),
            ("--prices", "gpu_type,base,theta\ngpu,1,", "line 2, theta is empty; use a number"),
            (
                "--prices",
                "gpu_type,base,theta\ngpu,1,2\ngpu,1,2",
                "line 3, gpu_type is repeated",
            ),
            (
                "--profiles",
                "model\nbert",
                "FILE: has no profile of job 'a1'; add rows of model 'm'",
            ),
            ("--profiles", "model,speed\nm,2", "line 2, speed is allowed only with a gpu_type"),
            ("--profiles", "model,gpu_type,speed\nm,gpu,0", "line 2, speed is out of bounds"),
            ("--profiles", "model,gpu_type,speed\nm,v100,2", "and job 'a1' in common"),
            ("--profiles", "model,t1_s,t2_s\nm,1,2", "line 2, t2_s needs iteration_s"),
            ("--profiles", "model,iteration_s,t1_s,t2_s\nm,1,2,1", "line 2, t2_s is below t1_s"),
            ("--profiles", "model,iteration_s,t1_s\nm,1,2", "line 2, t1_s and t2_s go together"),
            ("--profiles", "model,iteration_s\nm,0", "line 2, iteration_s is out of bounds"),
            ("--profiles", "model,gpu_type\nm,gpu\nm,gpu", "line 3, gpu_type is not the only one"),
            ("--profiles", "model,gpu_type\nm,gpu\nm,", "line 3, gpu_type is not the only one"),
            ("--profiles", "model,cold_s\nm,long", "line 2, cold_s is not a number of seconds"),
            ("--profiles", "model,checkpoint_s\nm,900", "checkpoint_s of 900 must be shorter than"),
            (
                *("--profiles", "model,gpu_type,cold_s\nm,gpu,1\nm,v100,2"),
                "line 3, cold_s differs from line 2; a model has one",
            ),
            (
                *("--profiles", "model,gpu_type,speed\nm,gpu,1\nm,v100,"),
                "line 3, speed is in some rows of model 'm'",
            ),
        ],
    )
    def test_invalid_file_shows_line_field_and_remedy(
        self, runs: Runs, option: str, content: str, says: str
    ) -> None:
        assert says in refused(runs, option, content)

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("name,gpu_type,gpus\nn1,gpu,0", "FILE: has no node with a GPU"),
            ("name,gpu_type,gpus\nn1,gpu,1\nn1,gpu,1", "line 3, name is repeated: 'n1'"),
            (
                "name,gpu_type,gpus\nn1,gpu,2000",
                "line 2, gpus is out of bounds: '2000'; use 0 to",
            ),
            ("name,gpu_type,gpus\n,gpu,2", "line 2, name is empty; name one"),
        ],
    )
    def test_rejects_invalid_node_list(self, runs: Runs, content: str, says: str) -> None:
        assert says in refused(runs, "--node-list", content, *runs.trace("a1,a,1,0,100"))

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            ((*ONE, "--start", "soon"), "--start is neither seconds nor an instant: 'soon'; use"),
            ((*ONE, "--spread-penalty", "1"), "--spread-penalty: must be a share from 0 to"),
            ((*ONE, "--spread-penalty", "nan"), "--spread-penalty: must be a share"),
            ((*ONE, "--quotas", "nowhere"), "nowhere: No such file"),
            ((*ONE, "--node-list", GAVEL), "--node-list and --partitions"),
            (
                (*ONE, "--estimates", "none", "--estimate-error", "0.1"),
                "--estimate-error changes true",
            ),
            (
                ("--gpu-types", "k80:1", "--speeds", GAVEL, "--profiles", GAVEL),
                "--speeds and --profiles both give speeds of models",
            ),
            ((*ONE, "--leases-out", GAVEL), "gavel_slice.csv: File exists"),
            (
                ("--partitions", GAVEL, "--quotas", GAVEL),
                "--quotas: not with --partitions, where each",
            ),
        ],
    )
    def test_rejects_invalid_options(self, runs: Runs, args: tuple[str, ...], says: str) -> None:
        with pytest.raises(CommandError, match=re.escape(says)):
            runs.run(*runs.trace("a1,a,1,0,100"), *args)

    def test_rejects_checkpoint_not_shorter_than_lease(self, runs: Runs) -> None:
        jobs = runs.trace("a1,a,1,0,100,60", header=f"{JOBS},checkpoint_s")
        with pytest.raises(CommandError, match="job 'a1': its checkpoint_s of 60 must be shorter"):
            runs.run(*jobs, *ONE, "--lease-s", "60")
