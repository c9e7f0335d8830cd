"""Checks whether a cluster's settings suit a pool, by pure functions that return findings.

`checks` queries the cluster and `cluster_text` parses the answers.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evenshare_core.domain.plurals import plural
from scheduling.engine.executors.slurm.cluster_text import SlurmNodeText, parse_seconds
from scheduling.engine.executors.slurm.commands import UNLIMITED, is_lease, parse_minutes
from scheduling.engine.executors.slurm.options import SlurmOptions

# The tested version, and the oldest one with the features that the executor needs.
TESTED, OLDEST = (22, 5), (20, 11)
# The time for which an ended job must stay listed, as the portal may be down for a while.
LEAST_JOB_AGE_S, GOOD_JOB_AGE_S = 300, 3600
# A larger difference between two clocks shifts the ends of jobs.
CLOCK_S = 5.0
# squeue's columns: user, name and comment of a job.
OWNER_COLUMNS = ("%u", "%j", "%k")
# The name of the trial job of `check_slurm --run`; no lease has this name.
TRIAL = "evenshare-check"
# The maximum number of names that a message lists.
LISTED = 8


class Level(StrEnum):
    """The severity of a finding. A pool with an error would not work."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class ClusterFinding:
    """A line of the report: the checked item, the result, and what to do."""

    level: Level
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<7}  {self.about}: {self.text}"


@dataclass(frozen=True)
class PoolNeeds:
    """The requirements of a pool for its cluster; `nodes` maps names to (GPU type, GPUs)."""

    lease_s: int
    grace_s: int
    outage_s: int
    nodes: Mapping[str, tuple[str, int]]


def _ok(about: str, text: str) -> ClusterFinding:
    return ClusterFinding(Level.OK, about, text)


def _warning(about: str, text: str) -> ClusterFinding:
    return ClusterFinding(Level.WARNING, about, text)


def _error(about: str, text: str) -> ClusterFinding:
    return ClusterFinding(Level.ERROR, about, text)


def version_findings(text: str) -> Iterator[ClusterFinding]:
    """Judge the output of `sinfo --version`, like `slurm-wlm 22.05.8` or `slurm 23.11.4`."""
    match = re.search(r"(\d+)\.(\d+)", text)
    if match is None:
        yield _warning("version", f"{text.strip()[:60]!r} tells none")
        return
    version = (int(match[1]), int(match[2]))
    if version < OLDEST:
        oldest = "{}.{:02}".format(*OLDEST)
        yield _error("version", f"{text.strip()} is older than {oldest}: update Slurm")
    elif version[0] != TESTED[0]:
        tested = "{}.{:02}".format(*TESTED)
        yield _warning(
            "version", f"{text.strip()}; tested with {tested}: try --run, and shadow mode"
        )
    else:
        yield _ok("version", text.strip())


def config_findings(config: Mapping[str, str], pool: PoolNeeds | None) -> Iterator[ClusterFinding]:
    """Judge the settings that `scontrol show config` prints."""
    yield from _priority(config)
    yield from _preemption(config)
    yield _requeue(config)
    yield _job_age(config)
    if pool is not None:
        yield _kill_wait(config, pool)
        yield _node_timeout(config, pool)
    yield from _gres(config)
    yield from _limits(config)


def _priority(config: Mapping[str, str]) -> Iterator[ClusterFinding]:
    plugin = config.get("PriorityType", "")
    about = "PriorityType"
    if plugin in ("", "priority/basic"):
        yield _ok(about, plugin or "priority/basic")
        return
    weight = config.get("PriorityWeightFairShare", "0")
    if weight not in ("", "0"):
        yield _warning(
            "PriorityWeightFairShare",
            f"{weight}: Slurm's own fairshare orders pending jobs. It has no effect in"
            f" Evenshare's own partition, because Evenshare submits only jobs that fit, with"
            f" their nodes. Set it to 0 if no other partition needs it",
        )
        return
    yield _ok(about, f"{plugin} without fairshare")


def _preemption(config: Mapping[str, str]) -> Iterator[ClusterFinding]:
    kind = config.get("PreemptType", "preempt/none")
    if kind in ("", "preempt/none"):
        yield _ok("PreemptType", "preempt/none")
    else:
        yield _warning(
            "PreemptType",
            f"{kind}: jobs of other partitions or QOS with a higher priority could end leases; see"
            " PreemptMode of the partition below",
        )


def _requeue(config: Mapping[str, str]) -> ClusterFinding:
    if config.get("JobRequeue", "1") == "0":
        return _ok("JobRequeue", "0")
    return _ok("JobRequeue", "1, which Evenshare's jobs override with --no-requeue")


def _job_age(config: Mapping[str, str]) -> ClusterFinding:
    seconds = parse_seconds(config.get("MinJobAge", ""))
    if seconds is None:
        return _warning("MinJobAge", "is unknown; ended jobs must stay listed for some minutes")
    advice = (
        f"{seconds} s: an ended job is forgotten then. Jobs that the portal has not polled by"
        f" then count as lost; set MinJobAge={GOOD_JOB_AGE_S}"
    )
    if seconds < LEAST_JOB_AGE_S:
        return _error("MinJobAge", advice)
    if seconds < GOOD_JOB_AGE_S:
        return _warning("MinJobAge", advice)
    return _ok("MinJobAge", f"{seconds} s")


def _kill_wait(config: Mapping[str, str], pool: PoolNeeds) -> ClusterFinding:
    seconds = parse_seconds(config.get("KillWait", "")) or 0
    if seconds < pool.grace_s:
        return _warning(
            "KillWait",
            f"{seconds} s, less than the pool's grace of {pool.grace_s} s: a job that"
            " scancel or its time limit ends is killed then. Leases end by the pool's grace",
        )
    return _ok("KillWait", f"{seconds} s, grace of the pool {pool.grace_s} s")


def _node_timeout(config: Mapping[str, str], pool: PoolNeeds) -> ClusterFinding:
    seconds = parse_seconds(config.get("SlurmdTimeout", "")) or 0
    if not seconds:
        return _warning(
            "SlurmdTimeout",
            "0: a node that does not respond is never down, and its leases end"
            " only at their expiry",
        )
    if seconds > max(pool.lease_s, pool.outage_s):
        return _warning(
            "SlurmdTimeout",
            f"{seconds} s: jobs of a lost node count as lost only then; the pool's leases last"
            f" {pool.lease_s} s",
        )
    return _ok("SlurmdTimeout", f"{seconds} s until the jobs of an unresponsive node count as lost")


def _gres(config: Mapping[str, str]) -> Iterator[ClusterFinding]:
    if "gpu" in re.split(r"[,\s]+", config.get("GresTypes", "")):
        yield _ok("GresTypes", config["GresTypes"])
    else:
        yield _warning("GresTypes", "has no gpu: Slurm knows no GPUs of the nodes")
    select = config.get("SelectType", "")
    if select and not select.endswith("cons_tres"):
        yield _error("SelectType", f"{select}: only select/cons_tres allocates GPUs")


def _limits(config: Mapping[str, str]) -> Iterator[ClusterFinding]:
    enforced = config.get("AccountingStorageEnforce", "none") or "none"
    if enforced not in ("none", "0"):
        yield _warning(
            "AccountingStorageEnforce",
            f"{enforced}: the portal's user needs an association with the partition and account,"
            " and its limits (GrpTRES, MaxJobs, ...) must be at least the pool's",
        )
    if config.get("JobSubmitPlugins"):
        yield _warning(
            "JobSubmitPlugins",
            f"{config['JobSubmitPlugins']}: may change or reject jobs; try --run",
        )
    private = re.split(r"[,\s]+", config.get("PrivateData", "none"))
    if "jobs" in private:
        yield _warning(
            "PrivateData", "jobs: shadow mode sees jobs of other users only as a Slurm operator"
        )


def partition_findings(
    partition: Mapping[str, str], options: SlurmOptions, pool: PoolNeeds | None
) -> Iterator[ClusterFinding]:
    """Judge the settings that `scontrol show partition NAME` prints."""
    name = partition.get("PartitionName", options.partition)
    about = f"partition {name}"
    state = partition.get("State", "")
    if state == "UP":
        yield _ok(about, "UP")
    else:
        yield _error(about, f"{state or 'no state'}: scontrol update PartitionName={name} State=UP")
    yield _most_time(partition, options, pool)
    mode = partition.get("PreemptMode", "OFF")
    if mode not in ("", "OFF", "GANG"):
        yield _error(
            f"{about}, PreemptMode", f"{mode}: Slurm would end leases; set PreemptMode=OFF for it"
        )
    sharing = partition.get("OverSubscribe", "NO")
    if sharing.startswith(("YES", "FORCE")):
        yield _warning(
            f"{about}, OverSubscribe",
            f"{sharing}: jobs may share CPUs with other jobs (but not GPUs); set OverSubscribe=NO",
        )
    elif sharing == "EXCLUSIVE":
        yield _error(
            f"{about}, OverSubscribe", "EXCLUSIVE: a job would get whole nodes; set it to NO"
        )
    if partition.get("ReqResv") == "YES" and not options.reservation:
        yield _error(f"{about}, ReqResv", "YES: set `reservation` in executor_options")
    if partition.get("RootOnly") == "YES":
        yield _error(f"{about}, RootOnly", "YES: only root may submit; set RootOnly=NO")
    if options.users and partition.get("AllocNodes", "ALL") in ("", "ALL"):
        yield _warning(
            f"{about}, AllocNodes",
            "ALL: users of tenants may submit jobs there from any machine, and Evenshare does not"
            " count them; set AllocNodes to the portal's machine",
        )
    accounts = partition.get("AllowAccounts", "ALL")
    if accounts not in ("", "ALL") and options.account not in accounts.split(","):
        yield _error(
            f"{about}, AllowAccounts",
            f"{accounts}: set one of them as `account` in executor_options",
        )


def _most_time(
    partition: Mapping[str, str], options: SlurmOptions, pool: PoolNeeds | None
) -> ClusterFinding:
    about = f"partition {options.partition}, MaxTime"
    text = partition.get("MaxTime", "UNLIMITED")
    minutes = parse_minutes(text)
    if minutes == UNLIMITED:
        return _ok(about, text)
    if options.limit_minutes > minutes:
        return _error(about, f"{text}: less than limit_minutes={options.limit_minutes}")
    if pool is not None and minutes * 60 < pool.lease_s + pool.outage_s + pool.grace_s:
        needed = pool.lease_s + pool.outage_s + pool.grace_s
        return _error(about, f"{text}: the pool's leases need {needed} s; set it to UNLIMITED")
    return _warning(
        about,
        f"{text}: a lease that is renewed for longer is ended there by Slurm, and its job"
        f" continues with the next lease; set it to UNLIMITED",
    )


def others_findings(
    rows: Iterable[Sequence[str]], own: Collection[str], installation: str
) -> Iterator[ClusterFinding]:
    """Judge the owners of jobs in the partition, by squeue's OWNER_COLUMNS.

    `own`: the users as which leases run, namely the portal's and those of tenants. They may also
    have submitted jobs by hand. Tokens of this portal's leases start with `installation`.
    """
    owners: Counter[str] = Counter()
    for user, name, comment in rows:
        owners[_owner(user, name, comment, own, installation)] += 1
    del owners[""]
    if not owners:
        yield _ok("jobs of others", "none in the partition")
        return
    listed = list_some(
        [f"{plural(count, 'job')} of {name}" for name, count in sorted(owners.items())]
    )
    yield _error(
        "jobs of others",
        f"{listed}: Evenshare counts the partition's GPUs as its own; close it to other users"
        f" (AllowAccounts, AllowGroups), and wait until their jobs end",
    )


def _owner(user: str, name: str, comment: str, own: Collection[str], installation: str) -> str:
    """Return the owner of a foreign job; empty for a lease or a trial of this portal."""
    if user not in own:
        return user
    if not is_lease(name, comment):
        return "" if name == TRIAL else f"{user} (by hand)"
    theirs = comment.partition("-")[0]
    return "" if theirs == installation else f"{user} (by the installation {theirs})"


def shared_node_findings(table: str, partition: str) -> Iterator[ClusterFinding]:
    """Judge whether nodes are also in other partitions, from `sinfo --Node --format=%N|%P`."""
    rows = [line.strip().partition("|") for line in table.splitlines()]
    partitions: dict[str, set[str]] = {}
    for node, _, name in rows:
        partitions.setdefault(node.strip(), set()).add(name.strip().rstrip("*"))
    own = {node: names for node, names in partitions.items() if partition in names}
    shared = {node: names - {partition} for node, names in own.items() if len(names) > 1}
    if shared:
        others = ", ".join(sorted(set().union(*shared.values())))
        yield _warning(
            "nodes in other partitions",
            f"{list_some(sorted(shared))} (in {others}): a job there takes GPUs that Evenshare"
            " counts as its own; remove them from the other partitions before the pool starts",
        )
    else:
        yield _ok("nodes in other partitions", "none")


def node_findings(
    nodes: Sequence[SlurmNodeText], options: SlurmOptions, pool: PoolNeeds | None
) -> Iterator[ClusterFinding]:
    """Compare sinfo's nodes with those of the pool, if a pool is given."""
    down = [f"{node.name} ({node.state})" for node in nodes if not node.is_up]
    if not nodes:
        yield _error("nodes", "the partition has none")
    elif down:
        yield _warning("nodes", f"not available: {list_some(down)}; no lease is started there")
    else:
        yield _ok("nodes", f"{len(nodes):,}, all available")
    if pool is None:
        return
    there = {node.name: node for node in nodes}
    missing = sorted(set(pool.nodes) - there.keys())
    if missing:
        yield _error("nodes of the pool", f"not in the partition: {list_some(missing)}")
    unused = sorted(there.keys() - set(pool.nodes))
    if unused:
        yield _warning("nodes of the partition", f"not in the pool: {list_some(unused)}")
    wrong = [
        text
        for name, (gpu_type, gpus) in sorted(pool.nodes.items())
        if name in there and (text := _other_gpus(there[name], gpu_type, gpus, options))
    ]
    if wrong:
        yield _error("GPUs", f"{list_some(wrong, 3)}; correct the nodes, or gres_types")
    elif pool.nodes and not missing:
        yield _ok("GPUs", "of all nodes of the pool match Slurm")


def _other_gpus(node: SlurmNodeText, gpu_type: str, gpus: int, options: SlurmOptions) -> str:
    gres = options.gres_types.get(gpu_type, gpu_type)
    counts = dict(node.gpus)
    has = counts.get(gres, 0) if gres else sum(counts.values())
    if has >= gpus:
        return ""
    has_text = ", ".join(f"{count} {name or 'GPUs'}" for name, count in node.gpus) or "no GPU"
    return f"{node.name} has {has_text} in Slurm, {gpus} {gpu_type} in the pool"


def rights_findings(options: SlurmOptions, *, is_operator: bool) -> Iterator[ClusterFinding]:
    """Judge whether the portal may move time limits at renewals, and end jobs of other users."""
    if options.users and not is_operator:
        yield _error(
            "users",
            "this user is not a Slurm operator, so it may neither cancel nor extend jobs of"
            " tenants' users. Make it an operator: sacctmgr modify user NAME set"
            " adminlevel=Operator",
        )
    if options.limit_minutes:
        yield _ok("time limits", f"set once to {plural(options.limit_minutes, 'minute')}")
    elif is_operator:
        yield _ok("time limits", "may be moved: this user is a Slurm operator")
    else:
        yield _error(
            "time limits",
            "this user is not a Slurm operator, so it may not extend a job. Make it an operator"
            " (sacctmgr modify user NAME set adminlevel=Operator), or set limit_minutes in"
            " executor_options",
        )


def clock_finding(machine: str, ahead_s: float) -> ClusterFinding:
    """Judge the difference between a machine's clock and the portal's."""
    about = f"clock of {machine}"
    if abs(ahead_s) > CLOCK_S:
        text = f"{ahead_s:+.0f} s off the portal's clock; run NTP on all machines"
        return _warning(about, text)
    return _ok(about, f"within {CLOCK_S:g} s of the portal's")


def list_some(names: Sequence[str], most: int = LISTED) -> str:
    """Return the first `most` names, followed by the number of the other names."""
    more = f", and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
