"""Test that operators can end a lease that its engine does not end: form, REST and command."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduling.models import ExecutorHealth, Intent, Job, Lease
from tenants.models import AuditRecord, User
from tests.functional.operate_stage import edit, operate_stage, overdue_lease, tag
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged

ACTION = "lease.written_off"


def overdue_town() -> Town:
    """Create a town whose job north-4 should have ended an hour ago; north-2 runs."""
    place = town()
    for gpus in (4, 2):
        place.submit(gpus)
    place.play(2)
    job = Job.objects.get(name="north-4")
    lease = Lease.objects.get(job=job)
    Lease.objects.filter(pk=lease.pk).update(state="stopping", end_reason="not_renewed")
    Job.objects.filter(pk=job.pk).update(state="stopping")
    asked = place.cluster.at - timedelta(hours=1)
    Intent.objects.create(pool=lease.pool, lease=lease, kind="stop", term=1, at=asked, state="done")
    return place


there = staged(overdue_town)


def _health(place: Town) -> str:
    return f"/operate/pools/{place.cluster.pool.name}/health/"


def _post(place: Town, name: str = "north-4", **typed: str) -> Any:
    lease = f"{Job.objects.get(name=name).uid}/1"
    return place.operator.post(
        f"{_health(place)}?end={lease}", {"do": "end_lease", "lease": lease, **typed}
    )


class TestForm:
    def test_ends_only_the_overdue_lease_with_audit_record(self, there: Town) -> None:
        assert "1 lease of" in page(there.operator, "/operate/")
        table = page(there.operator, _health(there)).split('id="t-overdue"')[1].split("</table>")[0]
        assert ">north-4</a>" in table
        assert "lists a running process" in table
        assert "north-2" not in table
        finance = page(visitor("fay", site_role=User.SiteRole.FINANCE), _health(there))
        assert "?end=" not in finance.split('id="t-overdue"')[1].split("</table>")[0]
        assert "north-4" not in finance.split('id="t-overdue"')[1].split("</table>")[0]
        # Missing fields are required, and the input stays in the form.
        refused = _post(there, reason="node is dead")
        assert refused.status_code == 422
        assert "Choose gone if" in refused.content.decode()
        assert 'value="node is dead"' in refused.content.decode()
        assert (
            "It was not asked to end"
            in _post(there, "north-2", processes="gone", reason="x").content.decode()
        )
        assert not AuditRecord.objects.filter(action=ACTION).exists()
        for said in ("ends this lease", "Already requested"):
            assert _post(there, processes="gone", reason="node is dead").status_code == 302
            assert said in page(there.operator, _health(there))
        record = AuditRecord.objects.get(action=ACTION)
        assert record.reason == "node is dead"
        assert "node is dead" in page(there.operator, "/operate/audit/")
        there.play(1)
        assert Lease.objects.get(job__name="north-4", number=1).state == "ended"
        assert 'id="t-overdue"' not in page(there.operator, _health(there))
        uid = Job.objects.get(name="north-4").uid
        assert "An operator ended the lease" in page(there.owner, f"/jobs/{uid}/")

    def test_is_for_operators_only(self, there: Town) -> None:
        typed = {"do": "end_lease", "processes": "gone", "reason": "x"}
        finance = visitor("fay", site_role=User.SiteRole.FINANCE)
        assert finance.post(_health(there), typed).status_code == 403
        assert there.owner.post(_health(there), typed).status_code == 404

    def test_lists_processes_without_lease(self, there: Town) -> None:
        ExecutorHealth.objects.create(
            pool=there.cluster.pool, orphans={"es-1-1": "2030-01-01T10:00:00+00:00"}
        )
        shown = page(there.operator, "/operate/")
        assert "still runs although the lease has ended, since 10:00 UTC" in shown


class TestCommand:
    def test_lists_overdue_leases_and_ends_one(self, there: Town) -> None:
        pool, uid = there.cluster.pool.name, str(Job.objects.get(name="north-4").uid)
        said = StringIO()
        call_command("end_lease", pool, stdout=said)
        assert said.getvalue().startswith(f"{uid} 1 north 4 GPUs on")
        with pytest.raises(CommandError, match=r"processes: .*reason: "):
            call_command("end_lease", pool, uid, "1", user="eve")
        typed = {"user": "eve", "processes": "unknown", "reason": "fan", "stdout": said}
        call_command("end_lease", pool, uid, "1", **typed)
        assert "the next round ends lease 1" in said.getvalue()
        actions = set(AuditRecord.objects.values_list("action", flat=True))
        assert {ACTION, "node.drained"} <= actions


@pytest.mark.django_db
class TestApi:
    def test_lists_overdue_leases_and_ends_one(self) -> None:
        stage = operate_stage()
        path = f"operate/pools/{stage.pool}/overdue"
        assert stage.get(path, as_="otto").json()["results"] == []
        nothing = tag(stage, path)
        lease = overdue_lease(stage)
        (row,) = stage.get(path, as_="otto").json()["results"]
        assert (row["job"]["id"], row["lease"], row["gpus"]) == (str(lease.job.uid), 1, 2)
        assert (row["engine"], row["reason"]) == ("runs", "not_renewed")
        # Finance may read the console, but not tenants' jobs.
        assert stage.get(path, as_="fin").json()["results"][0]["job"] is None
        end, body = f"{path}/{lease.job.uid}/1/end", {"processes": "gone", "reason": "dead"}
        assert edit(stage, "POST", end, body, seen=nothing).status_code == 412
        for _ in range(2):
            made = edit(stage, "POST", end, body, seen=path)
            assert made.status_code == 200, made.content
            assert made.json()["results"][0]["written_off"] is True
        assert AuditRecord.objects.filter(action=ACTION).count() == 1
        other = f"{path}/{stage.job().uid}/1/end"
        refused = edit(stage, "POST", other, body, seen=path)
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == "lease"
