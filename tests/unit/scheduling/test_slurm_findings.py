"""Test settings of clusters, and the findings about them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from scheduling.engine.executors.slurm.cluster_text import parse_config, parse_fields, parse_nodes
from scheduling.engine.executors.slurm.findings import (
    ClusterFinding,
    Level,
    PoolNeeds,
    clock_finding,
    config_findings,
    node_findings,
    others_findings,
    partition_findings,
    rights_findings,
    shared_node_findings,
    version_findings,
)
from scheduling.engine.executors.slurm.options import SlurmOptions

POOL = PoolNeeds(lease_s=900, grace_s=60, outage_s=300, nodes={"n1": ("a100", 4)})
OPTIONS = SlurmOptions(partition="gpu")

# Part of an output of Slurm 22.05.
GOOD = """\
AccountingStorageEnforce = none
GresTypes               = gpu
JobRequeue              = 0
JobSubmitPlugins        = (null)
KillWait                = 60 sec
MinJobAge               = 3600 sec
PreemptMode             = OFF
PreemptType             = preempt/none
PriorityType            = priority/basic
PrivateData             = none
SelectType              = select/cons_tres
SlurmdTimeout           = 300 sec
"""
# A university's cluster with Slurm 23.11: accounting, fairshare, and QOS that preempt.
SHARED = """\
AccountingStorageEnforce = associations,limits,qos,safe
GresTypes               = gpu,nvme
JobRequeue              = 1
JobSubmitPlugins        = lua
KillWait                = 30 sec
MinJobAge               = 300 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PriorityWeightFairShare = 100000
PriorityType            = priority/multifactor
PrivateData             = accounts,jobs,usage
SelectType              = select/cons_tres
SlurmdTimeout           = 3600 sec
"""
PARTITION = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=320 TotalNodes=5 SelectTypeParameters=NONE
"""


def worst(findings: Iterable[ClusterFinding]) -> Level:
    order = list(Level)
    return max((one.level for one in findings), key=order.index, default=Level.OK)


def levels(lines: list[ClusterFinding]) -> dict[str, str]:
    return {one.about: one.level.value for one in lines if one.level is not Level.OK}


def of_config(text: str) -> dict[str, str]:
    return levels(list(config_findings(parse_config(text), POOL)))


def of_partition(old: str = "", new: str = "", options: SlurmOptions = OPTIONS) -> dict[str, str]:
    fields = parse_fields(PARTITION.replace(old, new) if old else PARTITION)
    return levels(list(partition_findings(fields, options, POOL)))


class TestClusterConfig:
    def test_of_dedicated_cluster_is_ok(self) -> None:
        lines = list(config_findings(parse_config(GOOD), POOL))
        assert worst(lines) is Level.OK
        assert len(lines) == 7

    def test_of_shared_cluster_gives_warnings(self) -> None:
        assert of_config(SHARED) == {
            "PriorityWeightFairShare": "warning",
            "PreemptType": "warning",
            "MinJobAge": "warning",
            "KillWait": "warning",
            "SlurmdTimeout": "warning",
            "AccountingStorageEnforce": "warning",
            "JobSubmitPlugins": "warning",
            "PrivateData": "warning",
        }

    @pytest.mark.parametrize(
        ("old", "new", "about", "level"),
        [
            ("3600 sec", "60 sec", "MinJobAge", "error"),
            ("cons_tres", "linear", "SelectType", "error"),
            ("= gpu", "= (null)", "GresTypes", "warning"),
            ("300 sec", "0 sec", "SlurmdTimeout", "warning"),
            ("60 sec", "5 sec", "KillWait", "warning"),
        ],
    )
    def test_is_checked_against_pool(self, old: str, new: str, about: str, level: str) -> None:
        assert of_config(GOOD.replace(old, new)) == {about: level}

    def test_with_priorities_without_fairshare_is_ok(self) -> None:
        text = GOOD.replace("basic", "multifactor") + "PriorityWeightFairShare = 0\n"
        assert of_config(text) == {}


class TestPartition:
    def test_dedicated_partition_is_ok(self) -> None:
        assert of_partition() == {}

    @pytest.mark.parametrize(
        ("old", "new", "about", "level"),
        [
            ("State=UP", "State=DRAIN", "", "error"),
            ("MaxTime=UNLIMITED", "MaxTime=00:20:00", ", MaxTime", "error"),
            ("MaxTime=UNLIMITED", "MaxTime=2-00:00:00", ", MaxTime", "warning"),
            ("PreemptMode=OFF", "PreemptMode=REQUEUE", ", PreemptMode", "error"),
            ("OverSubscribe=NO", "OverSubscribe=FORCE:4", ", OverSubscribe", "warning"),
            ("OverSubscribe=NO", "OverSubscribe=EXCLUSIVE", ", OverSubscribe", "error"),
            ("ReqResv=NO", "ReqResv=YES", ", ReqResv", "error"),
            ("RootOnly=NO", "RootOnly=YES", ", RootOnly", "error"),
            ("AllowAccounts=ALL", "AllowAccounts=a,b", ", AllowAccounts", "error"),
        ],
    )
    def test_is_checked_against_pool(self, old: str, new: str, about: str, level: str) -> None:
        assert of_partition(old, new) == {f"partition gpu{about}": level}

    def test_respects_configured_options(self) -> None:
        options = SlurmOptions(partition="gpu", account="b", reservation="r", limit_minutes=60)
        assert of_partition("AllowAccounts=ALL", "AllowAccounts=a,b", options) == {}
        assert of_partition("ReqResv=NO", "ReqResv=YES", options) == {}
        short = of_partition("MaxTime=UNLIMITED", "MaxTime=00:30:00", options)
        assert short == {"partition gpu, MaxTime": "error"}

    def test_with_foreign_jobs_is_error_naming_them(self) -> None:
        own = ("evenshare", "evenshare-12", "es-12-1")
        by_hand = ("evenshare", "train", "es-12-1")
        elsewhere = ("evenshare", "evenshare-12", "east-12-1")
        theirs = [("ann", "a|b", "es-12-1"), ("ann", "evenshare-12", "es-12-1")]
        (line,) = others_findings((own, by_hand, elsewhere, *theirs), OWN, "es")
        assert line.level is Level.ERROR
        listed = (
            "2 jobs of ann, 1 job of evenshare (by hand),"
            " 1 job of evenshare (by the installation east): "
        )
        assert line.text.startswith(listed)

    def test_with_only_own_and_trial_jobs_is_ok(self) -> None:
        own = ("evenshare", "evenshare-12", "es-12-1")
        trial = ("evenshare", "evenshare-check", "evenshare-check")
        mapped = ("es-physics", "evenshare-13", "es-13-1")
        for rows in ((), (own, trial, mapped)):
            assert worst(others_findings(rows, OWN, "es")) is Level.OK


# The portal's user, and a tenant's user.
OWN = {"evenshare", "es-physics"}


class TestNodes:
    @pytest.mark.parametrize(
        ("table", "options", "expected"),
        [
            ("n1|idle|gpu:a100:4(S:0-1)|64|1", OPTIONS, {}),
            ("n1|idle|gpu:a100:8|64|1", OPTIONS, {}),
            ("n1|idle|gpu:a100:2|64|1", OPTIONS, {"GPUs": "error"}),
            ("n1|idle|gpu:v100:4|64|1", OPTIONS, {"GPUs": "error"}),
            ("n1|idle|gpu:4|64|1", OPTIONS, {"GPUs": "error"}),
            (
                "n1|idle|gpu:4|64|1",
                SlurmOptions(partition="gpu", gres_types={"a100": ""}),
                {},
            ),
            (
                "n1|idle|gpu:nvidia_a100:4|64|1",
                SlurmOptions(partition="gpu", gres_types={"a100": "nvidia_a100"}),
                {},
            ),
            ("n1|drained|gpu:a100:4|64|1", OPTIONS, {"nodes": "warning"}),
            (
                "n1|idle|gpu:a100:4|64|1\nn2|idle|gpu:a100:4|64|1",
                OPTIONS,
                {"nodes of the partition": "warning"},
            ),
            (
                "n3|idle|gpu:a100:4|64|1",
                OPTIONS,
                {"nodes of the pool": "error", "nodes of the partition": "warning"},
            ),
        ],
    )
    def test_are_checked_against_pool(
        self, table: str, options: SlurmOptions, expected: dict[str, str]
    ) -> None:
        assert levels(list(node_findings(parse_nodes(table), options, POOL))) == expected

    def test_shared_with_other_partitions_give_warning(self) -> None:
        table = "n1|gpu\nn1|batch*\nn2|gpu\nn3|batch*\n"
        (line,) = shared_node_findings(table, "gpu")
        assert line.level is Level.WARNING
        assert "n1 (in batch)" in line.text
        assert worst(shared_node_findings("n2|gpu*\nn3|batch\n", "gpu")) is Level.OK

    def test_empty_list_is_error(self) -> None:
        assert levels(list(node_findings([], OPTIONS, None))) == {"nodes": "error"}


class TestOtherFindings:
    @pytest.mark.parametrize(
        ("text", "level"),
        [
            ("slurm-wlm 22.05.8", "ok"),
            ("slurm 23.11.4", "warning"),
            ("slurm 20.02.7", "error"),
            ("?", "warning"),
        ],
    )
    def test_version_is_rated(self, text: str, level: str) -> None:
        assert [one.level for one in version_findings(text)] == [level]

    def test_user_without_operator_rights_needs_fixed_limit(self) -> None:
        fixed = SlurmOptions(partition="gpu", limit_minutes=600)
        assert worst(rights_findings(OPTIONS, is_operator=False)) is Level.ERROR
        assert worst(rights_findings(OPTIONS, is_operator=True)) is Level.OK
        assert worst(rights_findings(fixed, is_operator=False)) is Level.OK

    def test_clock_offset_gives_warning(self) -> None:
        line = clock_finding("n1", 90.0)
        assert (line.level, str(line)[9:34]) == (Level.WARNING, "clock of n1: +90 s off th")
        assert clock_finding("n2", -0.3).level is Level.OK

    def test_line_starts_with_level(self) -> None:
        assert str(ClusterFinding(Level.ERROR, "nodes", "none")) == "error    nodes: none"
