"""Test the options of a pool's executor, which an operator sets and the executor validates."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils.html import escape

from scheduling.engine.executors.base import EXECUTORS, executor_traits
from scheduling.engine.executors.pool_options import check_options
from scheduling.engine.executors.slurm.options import read_options
from scheduling.models import Lease, Pool
from tenants.input.errors import FieldErrors
from tenants.models import AuditRecord, User
from tests.functional.api_stage import ApiStage
from tests.functional.operate_stage import edit, operate_stage, tag
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged

GOOD: dict[str, Any] = {"partition": "gpu", "cpus_per_gpu": 8}
WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"partition": "is required"}),
    ({"partition": ""}, {"partition": "Expected a text of the form"}),
    ({"partition": "gpu", "nodes": 4}, {"nodes": "is not an option"}),
    (
        {"partition": "-x", "cpus_per_gpu": "8", "limit_minutes": -1, "path": 3},
        {
            "partition": "Expected a text of the form",
            "cpus_per_gpu": "Expected int, got str.",
            "limit_minutes": "Expected int >= 0.",
            "path": "Expected str, got int.",
        },
    ),
    ({"partition": "gpu", "accounts": {"a": 1}}, {"accounts": "Expected str, got int."}),
    ({"partition": "gpu", "cpus_per_gpu": 1.5}, {"cpus_per_gpu": "Expected int, got float."}),
    ({"partition": None}, {"partition": "Expected str, got null."}),
    # Each of these two options is checked, even if the other is not set.
    ({"partition": "gpu", "submit_as": ["sudo"]}, {"submit_as": "one of the words must be"}),
    ({"partition": "gpu", "users": {"a": "root"}}, {"users": "jobs never run as root"}),
]


def played_town() -> Town:
    made = town()
    _on_slurm(made.cluster.pool)
    return made


there = staged(played_town)


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    made = operate_stage()
    _on_slurm(made.cluster.pool)
    return made


def _on_slurm(pool: Pool) -> None:
    Pool.objects.filter(pk=pool.pk).update(executor="slurm", executor_options=GOOD)


def _path(place: Town) -> str:
    return f"/operate/pools/{place.cluster.pool.name}/settings/"


def _seen(place: Town) -> str:
    form = page(place.operator, _path(place)).split('id="executor-options"')[1]
    return form.split('name="seen" value="')[1].split('"')[0]


def _save(place: Town, options: object, **more: str) -> Any:
    """Post the form of the current page with these options."""
    written = options if isinstance(options, str) else json.dumps(options)
    typed = {"do": "executor", "executor_options": written, "seen": _seen(place)}
    return place.operator.post(_path(place), {**typed, **more})


def _nested(levels: int) -> str:
    """Return an object with nested lists, `levels` deep."""
    inner = levels - 1
    return '{"partition": ' + "[" * inner + "]" * inner + "}"


def _stored() -> Any:
    return Pool.objects.order_by("id").values_list("executor_options", flat=True)[0]


class TestOptionsValidation:
    @pytest.mark.parametrize(("options", "problems"), [*WRONG, (GOOD, {})])
    def test_finds_the_same_errors_as_the_executor(
        self, options: dict[str, Any], problems: dict[str, str]
    ) -> None:
        errors = FieldErrors()
        check_options(executor_traits("slurm").options_type, options, errors)
        found = {one.field: one.reason for one in errors}
        assert set(found) == {f"executor_options.{name}" for name in problems}
        for name, reason in problems.items():
            assert found[f"executor_options.{name}"].startswith(reason)
        if problems:
            with pytest.raises(Exception, match="executor_options of the pool"):
                read_options(options, "p")
        else:
            assert read_options(options, "p").cpus_per_gpu == 8

    @pytest.mark.parametrize("name", [*sorted(set(EXECUTORS) - {"slurm"}), "unknown"])
    def test_executor_without_options_rejects_any(self, name: str) -> None:
        kind = executor_traits(name).options_type
        for options, wrong in (({}, 0), ({"partition": "gpu"}, 1)):
            errors = FieldErrors()
            check_options(kind, options, errors)
            assert len(list(errors)) == wrong

    def test_rejects_oversized_options(self) -> None:
        errors = FieldErrors()
        accounts = {f"t{n}": "a" * 60 for n in range(400)}
        options = {"partition": "gpu", "accounts": accounts}
        check_options(executor_traits("slurm").options_type, options, errors)
        assert [str(one) for one in errors] == ["executor_options is longer than 16,384 bytes"]


class TestPage:
    def test_shows_current_and_available_options(self, there: Town) -> None:
        shown = page(there.operator, _path(there))
        assert escape(json.dumps(GOOD, indent=2)) in shown
        assert "Slurm" in shown.split('id="group-executor"')[1].split("</summary>")[0]
        for name in ("gres_types", "limit_minutes"):
            assert f"<code>{name}</code>" in shown
        other = f"/operate/pools/{there.elsewhere.pool.name}/settings/"
        assert "executor has no options" in page(there.operator, other)

    def test_saves_with_audit_record_of_differences(self, there: Town) -> None:
        wanted = {"partition": "gpu", "accounts": {"north": "physics"}}
        assert _save(there, wanted, reason="own accounts").status_code == 302
        assert _stored() == wanted
        record = AuditRecord.objects.get()
        assert (record.action, record.reason) == ("pool.changed", "own accounts")
        assert record.before == {"executor_options": {"cpus_per_gpu": 8, "accounts": None}}
        assert record.after == {
            "executor_options": {"cpus_per_gpu": None, "accounts": {"north": "physics"}}
        }
        assert "Executor options, accounts, north" in page(there.operator, "/operate/audit/")
        assert _save(there, wanted).status_code == 302
        assert "No changes, so nothing was saved" in page(there.operator, _path(there))
        assert AuditRecord.objects.count() == 1

    def test_rejects_stale_edit_and_shows_current_options(self, there: Town) -> None:
        seen = _seen(there)
        theirs, mine = {**GOOD, "qos": "high"}, {**GOOD, "account": "site"}
        assert _save(there, theirs).status_code == 302
        for stale in (seen, ""):
            answer = _save(there, mine, seen=stale, reason="own account")
            shown = answer.content.decode()
            assert answer.status_code == 422
            assert "The options were changed meanwhile: compare" in shown
            assert shown.count("were changed meanwhile") == 1
            assert "Saved meanwhile:" in shown
            assert escape(json.dumps(mine)) in shown
            assert 'value="own account"' in shown
            now = shown.split('id="x-set-since"')[1].split("</pre>")[0]
            assert escape('"qos": "high"') in now
            assert _stored() == theirs
        # A repeated submission contains options that are already set.
        assert _save(there, theirs, seen=seen).status_code == 302
        answer = _save(there, mine)
        assert answer.status_code == 302
        assert "x-set-since" not in page(there.operator, _path(there))
        assert _stored() == mine

    def test_error_of_reason_is_shown_at_its_field(self, there: Town) -> None:
        answer = _save(there, {**GOOD, "account": "site"}, reason="x" * 201)
        shown = answer.content.decode()
        assert answer.status_code == 422
        assert 'id="x-reason-err">Enter at most 200 characters.' in shown
        assert "x-options-err" not in shown
        assert _stored() == GOOD

    def test_names_each_invalid_option_and_keeps_input(self, there: Town) -> None:
        answer = _save(there, {"partition": "-x", "nodes": 4, "limit_minutes": -1}, reason="mine")
        shown = answer.content.decode()
        assert answer.status_code == 422
        for name in ("partition", "nodes", "limit_minutes"):
            assert f'<p class="err"><code>{name}</code>: ' in shown
        assert escape('"nodes": 4') in shown
        assert 'value="mine"' in shown
        assert _stored() == GOOD
        assert not AuditRecord.objects.exists()

    @pytest.mark.parametrize(
        ("written", "said"),
        [
            ('{"partition": "gpu",}', "Line 1, column "),
            ("", "Line 1, column 1 is not JSON"),
            ("[1]", "Must be an object"),
            ('{"partition": "a", "partition": "b"}', "partition is given twice"),
            ('{"partition": NaN}', "NaN is not a number"),
            ('{"partition": "a\\u0000"}', "characters that are not allowed"),
            ('{"partition": "a\\n"}', "characters that are not allowed"),
            ("[" * 100_000, "nested more than 32 levels deep"),
            *((_nested(levels), "nested more than 32 levels deep") for levels in (33, 400, 900)),
        ],
    )
    def test_rejects_malformed_json_with_position(
        self, there: Town, written: str, said: str
    ) -> None:
        answer = _save(there, written)
        assert answer.status_code == 422
        assert said in answer.content.decode()
        assert _stored() == GOOD

    def test_rejects_new_partition_while_leases_run(self, there: Town) -> None:
        there.submit(2)
        Pool.objects.update(executor="virtual")
        there.play(1)
        Pool.objects.filter(pk=there.cluster.pool.pk).update(executor="slurm")
        assert Lease.objects.get().state == "running"
        answer = _save(there, {**GOOD, "partition": "other"})
        assert answer.status_code == 422
        assert (
            "1 lease was launched by the present partition and would no longer be found"
            in answer.content.decode()
        )
        assert _stored() == GOOD
        assert _save(there, {**GOOD, "conf": "", "account": "site"}).status_code == 302
        Lease.objects.update(state="ended")
        assert _save(there, {**GOOD, "partition": "other"}).status_code == 302
        assert _stored()["partition"] == "other"

    @pytest.mark.parametrize(
        "risky",
        [
            {"submit_as": ["sh", "-c", "id > /tmp/x", "{user}"]},
            {"conf": "/jobs/1/slurm.conf"},
            {"path": "/jobs/1/bin:/usr/bin"},
            {"python": "/jobs/1/python"},
            {"users": {"north": "daemon"}},
            {"restd": {"url": "unix:/jobs/1/socket"}},
        ],
    )
    def test_rejects_options_that_name_programs_or_files(
        self, there: Town, risky: dict[str, Any]
    ) -> None:
        (name,) = risky
        answer = _save(there, {**GOOD, **risky})
        assert answer.status_code == 422
        assert f"<code>{name}</code>: This option is a program, a file" in answer.content.decode()
        assert _stored() == GOOD
        pool = there.cluster.pool
        there.cluster.pool.executor_options = {**GOOD, **risky}
        pool.save(update_fields=["executor_options"])
        # Options set from a shell stay when others change, and the form cannot remove them.
        assert _save(there, {**GOOD, **risky, "cpus_per_gpu": 4}).status_code == 302
        assert _save(there, GOOD).status_code == 422

    def test_is_for_operators_only(self, there: Town) -> None:
        typed = {"do": "executor", "executor_options": "{}"}
        finance = visitor("fay", site_role=User.SiteRole.FINANCE)
        assert finance.post(_path(there), typed).status_code == 403
        shown = page(finance, _path(there))
        assert "Save the options" not in shown
        # Finance users see the list of options below the form, which accepts no input from them.
        assert 'id="x-known"' in shown.split('id="executor-options"')[1].split("</form>")[1]
        assert there.owner.post(_path(there), typed).status_code == 404
        assert _stored() == GOOD


class TestApi:
    def test_patch_replaces_given_options(self, stage: ApiStage) -> None:
        path = f"operate/pools/{stage.pool}"
        seen = tag(stage, path)
        assert stage.get(path, as_="otto").json()["executor_options"] == GOOD
        wanted = {"partition": "gpu", "qos": "high"}
        made = edit(stage, "PATCH", path, {"executor_options": wanted, "lease_s": 600}, seen=seen)
        assert made.status_code == 200, made.content
        assert made.json()["executor_options"] == wanted
        assert made["ETag"] != seen
        assert edit(stage, "PATCH", path, {"executor_options": {}}, seen=seen).status_code == 412
        # Options without a field in the form do not change.
        assert edit(stage, "PATCH", path, {"lease_s": 700}, seen=path).status_code == 200
        assert _stored() == wanted

    def test_names_each_invalid_option_and_changes_nothing(self, stage: ApiStage) -> None:
        path = f"operate/pools/{stage.pool}"
        for options, problems in WRONG:
            body = {"executor_options": options, "lease_s": 600}
            refused = edit(stage, "PATCH", path, body, seen=path)
            assert refused.status_code == 400
            fields = {error["field"] for error in refused.json()["errors"]}
            assert fields == {f"executor_options.{name}" for name in problems}
        others: tuple[Any, ...] = ([], "x", {"partition": "a\n"})
        for wrong in others:
            refused = edit(stage, "PATCH", path, {"executor_options": wrong}, seen=path)
            assert [one["field"] for one in refused.json()["errors"]] == ["executor_options"]
        assert _stored() == GOOD
        assert stage.get(path, as_="otto").json()["lease_s"] == 900

    def test_rejects_options_that_name_programs_or_files(self, stage: ApiStage) -> None:
        path = f"operate/pools/{stage.pool}"
        body = {"executor_options": {**GOOD, "submit_as": ["sh", "{user}"]}}
        refused = edit(stage, "PATCH", path, body, seen=path)
        (error,) = refused.json()["errors"]
        assert error["field"] == "executor_options.submit_as"
        assert _stored() == GOOD

    def test_partition_change_with_running_lease_returns_409(self, stage: ApiStage) -> None:
        job = stage.job()
        Lease.objects.create(
            pool=stage.cluster.pool, tenant=job.tenant, job=job, number=1, state="running",
            gpu_type=stage.cluster.gpu_type, gpus=2, granted_round=1, placement=[],
            granted_at=stage.cluster.at, expires_at=stage.cluster.at, own=2, borrowed=0, price=0,
        )  # fmt: skip
        path = f"operate/pools/{stage.pool}"
        body = {"executor_options": {**GOOD, "partition": "other"}}
        refused = edit(stage, "PATCH", path, body, seen=path)
        assert refused.status_code == 409
        assert "1 lease was launched by the present partition" in refused.json()["detail"]
        assert _stored() == GOOD


class TestCommand:
    def run(self, pool: str, *words: str) -> str:
        out = StringIO()
        call_command("set_executor_options", pool, *words, stdout=out)
        return out.getvalue().strip()

    def test_sets_options_that_pages_reject(self, there: Town, tmp_path: Path) -> None:
        pool = there.cluster.pool.name
        wanted = {**GOOD, "users": {"north": "daemon"}, "submit_as": ["runuser", "-u", "{user}"]}
        file = tmp_path / "options.json"
        file.write_text(json.dumps(wanted))
        said = self.run(pool, str(file), "--user", "eve", "--reason", "isolation")
        assert said == f"the next leases of {pool} are launched with it"
        assert _stored() == wanted == json.loads(self.run(pool))
        record = AuditRecord.objects.get()
        assert (record.actor.username, record.reason) == ("eve", "isolation")
        assert self.run(pool, str(file), "--user", "eve") == "nothing changes"

    def test_requires_user_for_any_change(self, there: Town, tmp_path: Path) -> None:
        pool, file = there.cluster.pool.name, tmp_path / "options.json"
        file.write_text(json.dumps({"partition": "other"}))
        for words in ((str(file),), ("-",), ("--reason", "moved"), ("--same-cluster",)):
            with pytest.raises(CommandError, match="nothing is changed without --user NAME"):
                self.run(pool, *words)
        assert _stored() == GOOD == json.loads(self.run(pool))

    def test_same_cluster_option_allows_new_conf_path(self, there: Town, tmp_path: Path) -> None:
        there.submit(2)
        Pool.objects.update(executor="virtual")
        there.play(1)
        pool = there.cluster.pool.name
        Pool.objects.filter(name=pool).update(executor="slurm")
        wanted = {**GOOD, "conf": "/etc/slurm/new.conf"}
        file = tmp_path / "options.json"
        file.write_text(json.dumps(wanted))
        words = (str(file), "--user", "eve")
        with pytest.raises(CommandError, match="--same-cluster"):
            self.run(pool, *words)
        assert _stored() == GOOD
        assert Lease.objects.get().state == "running"
        self.run(pool, *words, "--same-cluster")
        assert _stored() == wanted
        assert AuditRecord.objects.get().after == {
            "executor_options": {"conf": "/etc/slurm/new.conf"},
            "same_cluster": True,
        }
        assert "Same cluster" in page(there.operator, "/operate/audit/")

    @pytest.mark.parametrize(
        ("written", "said"),
        [
            ("{", "Line 1, column 2 is not JSON"),
            ("[]", "must be an object"),
            ('{"partition": "a", "partition": "b"}', "partition is given twice"),
            ('{"partition": NaN}', "NaN is not a number"),
            (_nested(33), "nested more than 32 levels deep"),
            (_nested(900), "nested more than 32 levels deep"),
            ('{"partition": "gpu", "users": {"a": "root"}}', "jobs never run as root"),
            ('{"partition": "gpu", "nodes": 4}', "nodes is not an option"),
        ],
    )
    def test_rejects_invalid_file(
        self, there: Town, tmp_path: Path, written: str, said: str
    ) -> None:
        file = tmp_path / "options.json"
        file.write_text(written)
        with pytest.raises(CommandError, match=said):
            self.run(there.cluster.pool.name, str(file), "--user", "eve")
        assert _stored() == GOOD

    def test_is_for_operators_only(self, there: Town, tmp_path: Path) -> None:
        file = tmp_path / "options.json"
        file.write_text(json.dumps(GOOD))
        visitor("fay", site_role=User.SiteRole.FINANCE)
        for user, why in (("fay", "not an operator"), ("nobody-here", "there is no user")):
            with pytest.raises(CommandError, match=why):
                self.run(there.cluster.pool.name, str(file), "--user", user)


@pytest.mark.parametrize(
    ("options", "why"), [((), "--user NAME"), (("--user", "nobody-here"), "there is no user")]
)
def test_sync_nodes_checks_user_before_contacting_engine(
    there: Town, options: tuple[str, ...], why: str
) -> None:
    # The engine does not answer. If the command asked it first, the error would be different.
    with pytest.raises(CommandError, match=why):
        call_command("sync_nodes", there.cluster.pool.name, *options)
