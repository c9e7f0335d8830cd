"""Test Slurm's states of nodes in the formats of several versions, and the portal's updates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.node_source import EngineNode, EngineNodeState
from scheduling.engine.executors.slurm.nodes import (
    OURS,
    REASON_MAX,
    drain_nodes,
    parse_nodes,
    read_gpus,
    read_nodes,
    reason_text,
    resume_nodes,
)
from scheduling.engine.executors.slurm.options import SlurmOptions
from tests.slurm_nodes import PretendedNode, PretendedSlurm, row

PLAIN = SlurmOptions(partition="gpu")
UP, DRAINED, DOWN = EngineNodeState
AT = datetime(2026, 11, 26, 15, 30, tzinfo=UTC)
SINCE = str(int(AT.timestamp()))


def one(text: str, options: SlurmOptions = PLAIN) -> EngineNode:
    (node,) = parse_nodes(text, options)
    return node


class TestSlurmNode:
    @pytest.mark.parametrize(
        ("said", "state"),
        [
            # Slurm 22.05, in the format of sinfo's StateComplete
            ("idle", UP), ("allocated", UP), ("mixed", UP), ("mixed+completing", UP),
            ("idle+drain", DRAINED), ("mixed+drain", DRAINED), ("idle+fail", DRAINED),
            ("down", DOWN), ("down+not_responding", DOWN), ("idle+not_responding", DOWN),
            ("down+drain", DOWN), ("down+drain+not_responding", DOWN), ("idle+maint", DRAINED),
            ("idle+maintenance+reserved", DRAINED),
            # Slurm 20.11 adds signs; 23.11 and later write capitals and additional words
            ("idle*", DOWN), ("down*+drain", DOWN), ("DOWN+NOT_RESPONDING", DOWN),
            ("IDLE+DRAIN+DYNAMIC_NORM", DRAINED), ("IDLE+INVALID_REG", DOWN),
            ("IDLE+CLOUD+POWERED_DOWN", UP), ("IDLE+PLANNED", UP), ("idle+reboot_issued", DOWN),
            ("UNKNOWN", DOWN), ("FUTURE", DOWN),
        ],
    )  # fmt: skip
    def test_state_follows_slurm_state(self, said: str, state: EngineNodeState) -> None:
        assert one(row("n1", said, "disk")).state is state

    def test_has_reason_and_time_of_state(self) -> None:
        node = one(row("n1", "idle+drain", "bad  disk\n(asked | vendor)", since=SINCE))
        assert (node.reason, node.since) == ("bad disk (asked | vendor)", AT)
        silent = one(row("n1", "idle+not_responding", "none"))
        assert (silent.reason, silent.since) == ("not responding", None)

    def test_drained_by_portal_is_recognized(self) -> None:
        ours = row("n1", "idle+drain", f"{OURS}fan", since=SINCE)
        assert one(ours) == EngineNode("n1", "v100", 4, 64, 64000, drained_here=True)
        lost = one(row("n1", "down+drain+not_responding", f"{OURS}fan", since=SINCE))
        assert (lost.state, lost.reason, lost.drained_here) == (DOWN, "not responding", True)
        # An administrator changed the reason, so the drain no longer counts as the portal's.
        assert not one(row("n1", "idle+drain", "mine now")).drained_here
        # The reason may remain after the drain ended.
        assert not one(row("n1", "idle", f"{OURS}fan")).drained_here

    def test_in_maintenance_is_up_with_reservation(self) -> None:
        reserved = SlurmOptions(partition="gpu", reservation="evenshare")
        for state in ("idle+maint", "idle+maintenance+reserved"):
            assert one(row("n1", state), reserved).state is UP
        assert one(row("n1", "idle+maint+drain", "disk"), reserved).state is DRAINED

    def test_duplicates_and_garbage_are_ignored(self) -> None:
        text = row("n2") + row("n1") + "sinfo: warning\x1e" + row("n2", "down") + "\x1f\x1f\x1e"
        assert [node.name for node in parse_nodes(text, PLAIN)] == ["n1", "n2"]

    @given(st.text(alphabet="idle+drain*n1:gpu(,)\x1f\x1e\n \x00é0123456789"), st.booleans())
    def test_any_output_gives_printable_reason(self, text: str, inside: bool) -> None:
        for node in parse_nodes(row("n1", text, text, since=text) if inside else text, PLAIN):
            assert node.reason.isprintable()


class TestNodeGpus:
    @pytest.mark.parametrize(
        ("gres", "gpus"),
        [
            ("gpu:a100:4", ("a100", 4)),
            ("gpu:a100:4(S:0-1)", ("a100", 4)),
            ("gpu:a100:2(S:0),gpu:a100:2(S:1,3)", ("a100", 4)),
            ("craynetwork:4,gpu:v100:8,mps:800", ("v100", 8)),
            ("gpu:v100:no_consume:2", ("v100", 2)),
            ("gpu:v100", ("v100", 1)),
            ("gpu:NVIDIA-H100:8", ("h100", 8)),
        ],
    )
    def test_have_type_and_count(self, gres: str, gpus: tuple[str, int]) -> None:
        named = SlurmOptions(partition="gpu", gres_types={"h100": "NVIDIA-H100"})
        assert read_gpus(gres, named) == (gpus, "")

    def test_without_type_use_unnamed_type_of_options(self) -> None:
        untyped = SlurmOptions(partition="gpu", gres_types={"t4": ""})
        assert read_gpus("gpu:2", untyped) == (("t4", 2), "")
        assert "without a type" in read_gpus("gpu:2", PLAIN)[1]
        both = SlurmOptions(partition="gpu", gres_types={"t4": "", "k80": ""})
        assert "several types here (t4, k80)" in read_gpus("gpu:2", both)[1]

    @pytest.mark.parametrize(
        ("gres", "why"),
        [
            ("(null)", "no GPUs"),
            ("", "no GPUs"),
            ("gpu:a100:0", "no GPUs"),
            ("gpu:a100:2,gpu:v100:2", "several types (a100, v100)"),
        ],
    )
    def test_missing_or_mixed_types_make_node_unfit(self, gres: str, why: str) -> None:
        (gpu_type, gpus), unfit = read_gpus(gres, PLAIN)
        assert (gpu_type, gpus) == ("", 0)
        assert why in unfit


class TestDrain:
    @given(st.text())
    def test_reason_is_one_line_and_recognizable(self, reason: str) -> None:
        text = reason_text(reason)
        assert text.startswith(OURS.strip())
        assert len(text) <= REASON_MAX
        assert text.isprintable()
        assert '"' not in text
        assert one(row("n1", "idle+drain", text)).drained_here

    def test_is_sent_once_per_reason(self) -> None:
        slurm = PretendedSlurm({name: PretendedNode() for name in ("n1", "n2", "n3")})
        drain_nodes(slurm, {"n1": "two fans", "n3": "two fans", "n2": "State=UP; rm"})
        assert slurm.calls == [
            ("scontrol", "update", "NodeName=n1,n3", "State=DRAIN", "Reason=evenshare: two fans"),
            ("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=evenshare: State=UP; rm"),
        ]
        resume_nodes(slurm, ["n3", "n1"])
        assert slurm.calls[-1] == ("scontrol", "update", "NodeName=n1,n3", "State=RESUME")

    def test_without_rights_raises(self) -> None:
        slurm = PretendedSlurm({"n1": PretendedNode()}, refuses=True)
        with pytest.raises(ExecutorError, match=r"Invalid user id.*not a Slurm operator"):
            drain_nodes(slurm, {"n1": "fan"})


class TestPartition:
    def test_without_nodes_raises(self) -> None:
        with pytest.raises(ExecutorError, match="gpu does not exist"):
            read_nodes(PretendedSlurm({}))
