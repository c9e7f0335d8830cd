"""Test tenants' Unix users: options, permitted users, accepted rows, and findings."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import (
    SUBMITTERS,
    Slurm,
    SlurmSilentError,
    Submission,
    lease_jobs,
    parse_jobs,
    parse_table,
)
from scheduling.engine.executors.slurm.findings import Level, partition_findings, rights_findings
from scheduling.engine.executors.slurm.options import SlurmOptions, read_options
from scheduling.engine.executors.slurm.users import (
    UserRefusedError,
    user_of,
)
from tests.slurm import as_made
from tests.unix_users import NAMES, PORTAL, as_user, require_users

ANN, BEN, _ = NAMES
TOKEN = "es-7-1"


class TestOptions:
    def test_map_tenants_to_users_with_default(self) -> None:
        options = read_options({"partition": "gpu", "users": {"a": "ann", "*": "rest"}}, "p")
        assert [options.user_of(slug) for slug in ("a", "b")] == ["ann", "rest"]
        assert read_options({"partition": "gpu", "users": {"a": "ann"}}, "p").user_of("b") == ""

    def test_insert_user_into_command_prefix(self) -> None:
        options = SlurmOptions(partition="gpu", submit_as=("su", "{user}", "x{user}"))
        assert options.prefix("ann") == ["su", "ann", "x{user}"]
        assert SlurmOptions(partition="gpu").prefix("ann") == ["sudo", "-n", "-u", "ann", "--"]
        assert options.prefix("") == []

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [
            ({"users": {"a": "root"}}, r"\$\.users"),
            ({"users": {"a": "ann"}, "restd": {"url": "unix:/run/x"}}, r"one user .*\$\.restd"),
            ({"users": {"a": "-u"}}, r"\$\.users"),
            ({"users": {"a": "#0"}}, r"\$\.users"),
            ({"users": {"a": "0"}}, r"\$\.users"),
            ({"users": {"a": ""}}, r"\$\.users"),
            ({"users": {"a b": "ann"}}, r"\$\.users"),
            ({"users": ["ann"]}, r"\$\.users"),
            ({"submit_as": ["sudo", "-u", "x{user}"]}, r"\$\.submit_as"),
            ({"submit_as": []}, r"\$\.submit_as"),
            ({"submit_as": "sudo {user}"}, r"\$\.submit_as"),
            ({"submit_as": ["{user}", "a\nb"]}, r"\$\.submit_as"),
        ],
    )
    def test_invalid_values_are_named(self, wrong: dict[str, Any], field: str) -> None:
        with pytest.raises(ExecutorError, match=field):
            read_options({"partition": "gpu", **wrong}, "p")


class TestUser:
    def of(self, users: dict[str, str], tenant: str = "a") -> str:
        with pytest.raises(UserRefusedError) as refused:
            user_of(SlurmOptions(partition="gpu", users=users), tenant)
        return str(refused.value)

    def test_is_required_if_other_tenants_have_one(self) -> None:
        require_users()
        assert "the tenant b has no Unix user" in self.of({"a": ANN}, "b")
        assert user_of(SlurmOptions(partition="gpu"), "b") is None

    def test_unknown_user_is_rejected(self) -> None:
        assert "no Unix user nobody-here" in self.of({"a": "nobody-here"})

    def test_root_alias_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        toor = pwd.struct_passwd(("toor", "x", 0, 0, "", "/", "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwnam", lambda _: toor)
        assert "is root" in self.of({"a": "toor"})

    def test_own_user_of_portal_is_rejected(self) -> None:
        require_users()

        def look() -> None:
            assert "is the portal's own" in self.of({"a": PORTAL})

        as_user(PORTAL, look)

    def test_primary_group_must_include_portal(self) -> None:
        require_users()
        options = SlurmOptions(partition="gpu", users={"a": ANN})

        def look() -> None:
            assert "is not in the primary group" in self.of({"a": ANN})

        def find() -> None:
            user = user_of(options, "a")
            assert user is not None
            assert user.uid == pwd.getpwnam(ANN).pw_uid

        as_user(PORTAL, look)
        as_user(PORTAL, find, groups=(ANN,))

    def test_shared_group_or_uid_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = {
            name: pwd.struct_passwd((name, "x", uid, 61234, "", "/", "/bin/sh"))
            for name, uid in (("ann", 61001), ("ben", 61002))
        }
        monkeypatch.setattr(pwd, "getpwnam", entries.__getitem__)
        monkeypatch.setattr(os, "getgroups", lambda: [61234])
        assert "have one primary group" in self.of({"a": "ann", "b": "ben"})
        entries["ben"] = pwd.struct_passwd(("ben", "x", 61001, 61235, "", "/", "/bin/sh"))
        assert "are one user (61001) with two names" in self.of({"a": "ann", "b": "ben"})


class TestBatch:
    def test_continues_for_other_users_if_one_is_silent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A user's processes could stop the submitter, because it runs as the same user."""
        asked = []

        def submit(_: Slurm, submission: Submission) -> int:
            asked.append(submission.user)
            if submission.user == "ann":
                raise SlurmSilentError("sbatch as ann did not answer")
            return len(asked)

        monkeypatch.setattr(Slurm, "_submit", submit)
        batch = [
            Submission(f"es-{n}-1", "", (), "", "", "", (), 1, user=user)
            for n, user in enumerate(["ann"] * 30 + ["ben"] * 3)
        ]
        answers = Slurm(SlurmOptions(partition="gpu")).submit(as_made(*batch))
        assert [isinstance(one, int) for one in answers.values()] == [False] * 30 + [True] * 3
        assert asked.count("ann") <= SUBMITTERS


def row(token: str, uid: int, *, job_id: int = 1, state: str = "RUNNING") -> list[str]:
    name = f"evenshare-{token.split('-')[1]}"
    return [str(job_id), state, "10:00", "100", "900", str(uid), name, token]


class TestRow:
    def test_counts_only_for_user_of_its_token(self) -> None:
        table = [row(TOKEN, 5, job_id=1), row(TOKEN, 6, job_id=2)]
        for uid, job_id in ((5, 1), (6, 2)):
            ours = (TOKEN, uid)
            jobs = lease_jobs(parse_jobs(table), lambda *row, ours=ours: row == ours)
            assert [job.job_id for job in jobs.values()] == [job_id]
        assert lease_jobs(parse_jobs(table), lambda _token, _uid: False) == {}

    def test_without_numeric_uid_is_ignored(self) -> None:
        nameless = [cell if cell != "5" else "ann" for cell in row(TOKEN, 5)]
        assert lease_jobs(parse_jobs([nameless]), lambda *_: True) == {}

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\x1c", "\x85", "\u2028", "\v"])
    def test_cannot_be_forged_in_job_comment(self, end: str) -> None:
        """A user may set a running job's comment to any text."""
        forged = "\x1f".join(row(TOKEN, 0, job_id=4242))
        marked = "\x1f".join(("mark", *row("es-9-1", 5)))
        text = f"{marked}{end}{forged}{end}guess\x1f{forged}\n"
        assert "4242" not in {cells[0] for cells in parse_table(text, "mark", 8)}


class TestFindings:
    USERS = SlurmOptions(partition="gpu", users={"a": "ann"}, limit_minutes=60)

    def test_require_operator_rights_with_users(self) -> None:
        levels = [one.level for one in rights_findings(self.USERS, is_operator=False)]
        assert levels == [Level.ERROR, Level.OK]
        assert [one.level for one in rights_findings(self.USERS, is_operator=True)] == [Level.OK]

    def test_warn_if_users_may_submit_from_any_node(self) -> None:
        def about(nodes: str) -> list[str]:
            fields = {"State": "UP", "AllocNodes": nodes}
            return [
                one.about
                for one in partition_findings(fields, self.USERS, None)
                if one.level is Level.WARNING
            ]

        assert about("ALL") == ["partition gpu, AllocNodes"]
        assert about("portal") == []
