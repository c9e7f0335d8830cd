"""Test the output of Slurm's tools in several versions, read as values."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.cluster_text import (
    expand_nodes,
    parse_config,
    parse_fields,
    parse_gpus,
    parse_nodes,
)
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.observation import ObservedRow, join, look
from scheduling.engine.executors.slurm.options import SlurmOptions


class TestGpus:
    @pytest.mark.parametrize(
        ("text", "gpus"),
        [
            ("gres:gpu:a100:4", [("a100", 4)]),  # Slurm 22.05, from tres-per-node
            ("gres/gpu:a100:4", [("a100", 4)]),  # Slurm 23.02
            ("gres/gpu:a100=4", [("a100", 4)]),  # Slurm 24.05
            ("gres:gpu:4", [("", 4)]),
            ("gres/gpu=4", [("", 4)]),
            ("gpu:a100:4(S:0-1),nvme:1", [("a100", 4)]),  # %G of sinfo
            ("gpu:a100:2(S:0),gpu:v100:1", [("a100", 2), ("v100", 1)]),
            ("gpu:nvidia_a100-sxm4-80gb:8", [("nvidia_a100-sxm4-80gb", 8)]),
            ("gpu", [("", 1)]),
            ("gres:gpu:a100", [("a100", 1)]),
            ("cpu=8,mem=10G,node=1,gres/gpu=2,gres/gpu:h100=2", [("", 2), ("h100", 2)]),
            ("gres/shard:2", []),
            ("(null)", []),
            ("N/A", []),
        ],
    )
    def test_are_parsed_from_all_notations(self, text: str, gpus: list[tuple[str, int]]) -> None:
        assert parse_gpus(text) == gpus


class TestNodes:
    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("node-1", ["node-1"]),
            ("node-[1-3,7]", ["node-1", "node-2", "node-3", "node-7"]),
            ("n[08-10],login", ["n08", "n09", "n10", "login"]),
            ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
            ("", []),
            ("n[0-99999999]", []),
        ],
    )
    def test_names_are_expanded(self, text: str, names: list[str]) -> None:
        assert list(expand_nodes(text)) == names

    def test_table_is_parsed_with_states(self) -> None:
        table = "\n".join(
            f"{name}|{state}|gpu:a100:4(S:0)|64|512000+"
            for name, state in (
                ("a", "idle"), ("b", "mixed"), ("c", "allocated"), ("d", "drained"),
                ("e", "idle*"), ("f", "down*"), ("g", "idle~"), ("h", "draining"), ("a", "idle"),
            )
        )  # fmt: skip
        nodes = parse_nodes(table)
        assert [node.name for node in nodes] == list("abcdefgh")
        assert [node.name for node in nodes if node.is_up] == ["a", "b", "c", "g"]
        assert nodes[0].memory_mib == 512000


class TestSettings:
    def test_of_cluster_are_parsed(self) -> None:
        config = parse_config(
            "Configuration data as of 1795706811\n"
            "MinJobAge               = 300 sec\nJobSubmitPlugins        = (null)\n\n"
            "SlurmctldHost[0]        = head(10.0.0.1)\nCgroup Support Configuration:\n"
        )
        assert config == {
            "MinJobAge": "300 sec", "JobSubmitPlugins": "", "SlurmctldHost[0]": "head(10.0.0.1)",
        }  # fmt: skip

    def test_of_partition_are_parsed(self) -> None:
        fields = parse_fields(
            "PartitionName=gpu\n   AllowGroups=ALL QoS=N/A\n   TRES=cpu=320,gres/gpu=20\n"
        )
        assert fields == {
            "PartitionName": "gpu", "AllowGroups": "ALL", "QoS": "", "TRES": "cpu=320,gres/gpu=20",
        }  # fmt: skip


def line(**cells: str) -> str:
    """Return a row of squeue, by default that of a running job."""
    row = {
        "id": "7", "state": "RUNNING", "account": "bio", "user": "ann", "nodes": "1", "tasks": "1",
        "alloc": "cpu=1,node=1", "job": "N/A", "node": "gres:gpu:a100:4", "task": "N/A",
        "submit": "100", "eligible": "110", "start": "120", "end": "900", "limit": "10:00",
        "list": "n1", **cells,
    }  # fmt: skip
    return "|".join(f"{cell:<20}" for cell in row.values()) + "|"


class NarrowSqueue:
    """A squeue that prints one job; only the fields of --Format are cut to their widths."""

    options = SlurmOptions(partition="gpu")

    def __init__(self, nodes: str, *, is_gone: bool = False) -> None:
        self.nodes, self.is_gone = nodes, is_gone

    def ask(self, tool: str, *arguments: str) -> str:
        assert tool == "squeue"
        if arguments[-1] == "--format=%i|%N":
            return "" if self.is_gone else f"7|{self.nodes}\n"
        cells = [cell.strip() for cell in line(list=self.nodes).split("|")]
        columns = [column.split(":") for column in arguments[-1].rstrip("|").split("|,")]
        return "".join(
            f"{cell[: int(width)]:<{width}}|"
            for cell, (_, width) in zip(cells, columns, strict=False)
        )


class TestLongNodeList:
    NAMES = tuple(f"rack{n}-gpu-server-{n * 7}" for n in range(64))

    def test_is_read_completely(self) -> None:
        squeue: Any = NarrowSqueue(",".join(self.NAMES))
        (row,) = look(squeue, 200).values()
        assert row.nodes == self.NAMES

    def test_raises_if_job_has_disappeared(self) -> None:
        squeue: Any = NarrowSqueue(",".join(self.NAMES), is_gone=True)
        with pytest.raises(ExecutorError, match="did not list the nodes of job 7"):
            look(squeue, 200)

    def test_short_list_needs_no_second_query(self) -> None:
        squeue: Any = NarrowSqueue("n[1-64]", is_gone=True)
        (row,) = look(squeue, 200).values()
        assert len(row.nodes) == 64


class ListedJobs(Slurm):
    """A squeue that prints this table."""

    def __init__(self, table: str) -> None:
        super().__init__(SlurmOptions(partition="gpu"))
        self._table = table

    def ask(self, tool: str, *arguments: str) -> str:
        return self._table


def seen(at: int, *lines: str, tenant: str = "account") -> dict[tuple[str, int], ObservedRow]:
    return look(ListedJobs("\n".join(lines)), at, tenant=tenant)


class TestPoll:
    def test_reports_allocation_and_times(self) -> None:
        row = seen(200, line())["7", 100]
        assert (row.tenant, row.gpus, row.gpu_type, row.nodes) == ("bio", 4, "a100", ("n1",))
        assert (row.ready, row.started, row.ended, row.limit_minutes) == (110, 120, None, 10)

    def test_uses_user_as_tenant_on_request_or_without_account(self) -> None:
        assert seen(1, line(), tenant="user")["7", 100].tenant == "ann"
        assert seen(1, line(account="(null)"))["7", 100].tenant == "ann"

    @pytest.mark.parametrize(
        ("cells", "gpus"),
        [
            ({"nodes": "2"}, 8),
            ({"job": "gres:gpu:6", "node": "N/A"}, 6),
            ({"node": "N/A", "task": "gres/gpu:v100=1", "tasks": "3"}, 3),
            ({"node": "N/A", "alloc": "cpu=1,gres/gpu=5"}, 5),
            ({"node": "gres:gpu:1", "alloc": "cpu=1,gres/gpu=2,gres/gpu:a100=2"}, 2),
            ({"node": "N/A"}, 0),
        ],
    )
    def test_counts_gpus_of_whole_job(self, cells: dict[str, str], gpus: int) -> None:
        assert seen(1, line(**cells))["7", 100].gpus == gpus

    def test_ignores_expected_start(self) -> None:
        row = seen(1, line(state="PENDING", start="5000", end="NONE", list=""))["7", 100]
        assert (row.started, row.ended) == (None, None)
        gone = seen(1, line(state="CANCELLED", start="500", end="500", list=""))["7", 100]
        assert (gone.started, gone.ended) == (None, 500)

    def test_job_not_yet_eligible_has_no_ready_time(self) -> None:
        row = seen(1, line(state="PENDING", eligible="N/A", start="N/A", list=""))["7", 100]
        assert row.ready is None

    def test_distinguishes_reused_job_ids(self) -> None:
        assert len(seen(1, line(), line(submit="900"))) == 2


class TestConsecutivePolls:
    def test_follow_job_to_its_end(self) -> None:
        first = seen(130, line())
        second = seen(160, line(state="COMPLETED", end="150"))
        row = join(first, second)["7", 100]
        assert (row.started, row.ended, row.is_lost) == (120, 150, False)
        assert join(join(first, second), {}) == join(first, second)

    def test_end_job_that_is_no_longer_listed(self) -> None:
        row = join(seen(130, line()), {})["7", 100]
        assert (row.ended, row.is_lost, row.is_over) == (130, True, True)

    def test_restore_job_that_reappears(self) -> None:
        lost = join(seen(130, line()), {})
        row = join(lost, seen(190, line()))["7", 100]
        assert (row.ended, row.is_lost) == (None, False)
