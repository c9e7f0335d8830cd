"""`decide`: a round of any policy on a stored snapshot."""

import argparse
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evenshare_core.cli.command import CliError, CoreCommand, Options, Stream, say
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.domain.snapshot import SCHEMA_VERSION, Snapshot
from evenshare_core.domain.values import canonical_bytes, decode, named, sha256_hex
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.registry import UnknownPolicyError, policy


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--snapshot",
        required=True,
        metavar="FILE",
        help="canonical bytes of a snapshot, plain or compressed by zlib or gzip",
    )
    add("--policy", metavar="P", help="another policy than the snapshot's; it knows no past")
    add("--option", action="append", default=[], metavar="KEY=VALUE")
    add("--json", action="store_true", help="print the decision, with the names of its fields")


def _run(options: Options, out: Stream, _err: Stream) -> None:
    """Print the decision, or its counts and the SHA-256 of its canonical bytes."""
    try:
        snapshot = _asked(_read(Path(options["snapshot"])), options)
        decision = decide_round(snapshot)
    except (OptionError, UnknownPolicyError, ValueError, OSError) as error:
        raise CliError(str(error)) from error
    except InvariantViolation as error:
        raise CliError(f"the policy broke an invariant: {error}") from error
    if options["json"]:
        say(out, json.dumps(named(decision)))
        return
    for name, value in _counts(snapshot, decision).items():
        say(out, f"{name}: {value}")


def _read(path: Path) -> Snapshot:
    """Read a snapshot.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a valid snapshot, or has a newer version.
    """
    data = path.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        elif data[:1] == b"\x78":  # zlib data starts with this byte, and JSON never does
            data = zlib.decompress(data)
        snapshot = decode(data, Snapshot)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} cannot be decompressed: {error}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} holds no snapshot: {error}") from error
    if snapshot.schema > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has a snapshot of version {snapshot.schema}; the newest known is"
            f" {SCHEMA_VERSION}"
        )
    for what, holds in _bounds(snapshot):
        if not holds:
            raise ValueError(f"{path} has no valid snapshot: {what}")
    return snapshot


def _bounds(snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Yield each condition that portal snapshots always meet, and whether this one meets it."""
    yield "lease_us must be at least 1", snapshot.lease_us >= 1
    bounds = snapshot.lease_bounds_us
    least, most = bounds if len(bounds) == 2 else (1, snapshot.lease_us)
    is_within = len(bounds) in (0, 2) and 1 <= least <= snapshot.lease_us <= most
    yield "lease_bounds_us must be empty, or a minimum and a maximum around lease_us", is_within
    yield "round_us must be at least 0", snapshot.round_us >= 0
    for node in snapshot.nodes:
        yield f"node {node.id}: gpus must be at least 0", node.gpus >= 0
    for job in snapshot.jobs:
        yield f"job {job.id}: gpus and weight must be at least 1", min(job.gpus, job.weight) >= 1
    for row in snapshot.entitlements:
        yield f"quota of tenant {row.tenant}: gpus must be at least 0", row.gpus >= 0
    for profile in snapshot.profiles:
        slowest = min((speed for _, speed in profile.speedups), default=0)
        yield f"profile {profile.id}: priority must be at least 1", profile.priority >= 1
        yield f"profile {profile.id}: speeds must be at least 0", slowest >= 0


def _asked(snapshot: Snapshot, options: Options) -> Snapshot:
    """Return the snapshot with the chosen policy and options.

    Stored options are kept only if the policy stays the same, and the stored memory only if the
    policy's version stays the same, too.
    """
    name = options["policy"] or snapshot.policy
    other = name != snapshot.policy
    chosen = {} if other else dict(snapshot.options)
    for text in options["option"]:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"an option must be KEY=VALUE, not {text!r}")
        try:
            chosen[key] = json.loads(value)
        except json.JSONDecodeError:
            chosen[key] = value
    chosen_policy = policy(name)
    same = not other and chosen_policy.version == snapshot.policy_version
    return msgspec.structs.replace(
        snapshot,
        policy=name,
        policy_version=chosen_policy.version,
        options=chosen,
        memory=snapshot.memory if same else {},
    )


def _counts(snapshot: Snapshot, decision: Decision) -> dict[str, object]:
    solve = decision.solve
    return {
        "policy": f"{snapshot.policy} (version {snapshot.policy_version})",
        "granted": len(decision.grants),
        "renewed": len(decision.renewals),
        "ended": len(decision.ends),
        "waiting": sum(len(skip.jobs) for skip in decision.skips),
        "solved": f"{solve.status} by {solve.backend}" if solve is not None else "no program",
        "sha256": sha256_hex(canonical_bytes(decision)),
    }


DECIDE = CoreCommand(
    "decide", "Decide a stored snapshot with a policy; needs no database.", _add_arguments, _run
)
