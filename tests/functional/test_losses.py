"""Test leases that vanished at once: an operator sees them, and accepts their loss."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from scheduling.engine.clock import wall_now
from scheduling.models import ExecutorHealth, Lease, Pool
from scheduling.selectors.operate.losses import name_of
from scheduling.services.executors import accept_losses
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, User
from tests.functional.operate_stage import edit, operate_stage, tag
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged


def played_town() -> Town:
    """Create a town with three running jobs, none of which its executor lists."""
    place = town()
    for gpus in (4, 2, 1):
        place.submit(gpus)
    place.play(2)
    freeze(place.cluster.pool)
    return place


there = staged(played_town)


def freeze(pool: Pool, leave_out: int = 0) -> ExecutorHealth:
    """Store the state that rounds record when many leases vanish at once."""
    leases = Lease.objects.filter(pool=pool, state="running").order_by("id")
    since = wall_now() - timedelta(minutes=3)
    tokens = [f"es-{lease.job_id}-{lease.number}" for lease in leases]
    row, _ = ExecutorHealth.objects.update_or_create(
        pool=pool,
        defaults={
            "frozen_since": since,
            "launched": len(tokens),
            "missing": dict.fromkeys(tokens[leave_out:], since.isoformat()),
        },
    )
    return row


def _health(place: Town) -> str:
    return f"/operate/pools/{place.cluster.pool.name}/health/"


def _post(place: Town, **more: str) -> Any:
    seen = page(place.operator, _health(place)).split('name="seen" value="')
    typed = {"do": "accept_losses", "seen": seen[1].split('"')[0] if len(seen) > 1 else ""}
    return place.operator.post(_health(place), {**typed, **more})


def _records() -> list[AuditRecord]:
    return list(AuditRecord.objects.filter(action="executor.losses_accepted"))


class TestPage:
    def test_lists_each_missing_lease(self, there: Town) -> None:
        shown = page(there.operator, _health(there))
        table = shown.split('id="t-losses"')[1].split("</table>")[0]
        for name in ("north-4", "north-2", "north-1"):
            assert f">{name}</a>" in table
        assert table.count("frozen") == 3
        assert "n0000" in table
        auditor = visitor("fay", site_role=User.SiteRole.FINANCE)
        read = page(auditor, _health(there))
        assert 'id="t-losses"' in read
        assert "north-4" not in read.split('id="t-losses"')[1].split("</table>")[0]
        assert "losses-yes" not in read

    def test_states_number_of_unlisted_leases(self, there: Town) -> None:
        shown = page(there.operator, _health(there))
        assert "are named above" not in shown
        row = ExecutorHealth.objects.get()
        row.missing |= {f"es-{number}-1": "" for number in range(1000, 1050)}
        row.save()
        shown = " ".join(page(there.operator, _health(there)).split())
        assert "50 are named above; 3 more are included." in shown

    def test_accepts_the_set_that_was_shown(self, there: Town) -> None:
        answer = _post(there, reason="reinstallation")
        assert answer.status_code == 302
        (record,) = _records()
        row = ExecutorHealth.objects.get()
        assert row.accepted == sorted(row.missing)
        said = {"leases": 3, "tokens": row.accepted, "seen": name_of(row)}
        assert (record.after, record.reason) == (said, "reinstallation")
        shown = page(there.operator, _health(there))
        assert "Accepted: the next round of" in shown
        assert "Their loss is accepted" in shown
        assert "losses-yes" not in shown
        assert row.accepted[0] in page(there.operator, "/operate/audit/")

    def test_repeated_submission_is_idempotent(self, there: Town) -> None:
        seen = page(there.operator, _health(there)).split('name="seen" value="')[1].split('"')[0]
        for _ in range(2):
            typed = {"do": "accept_losses", "seen": seen}
            assert there.operator.post(_health(there), typed).status_code == 302
        assert len(_records()) == 1
        assert "Already accepted" in page(there.operator, _health(there))

    def test_rejects_acceptance_of_a_changed_set(self, there: Town) -> None:
        seen = page(there.operator, _health(there)).split('name="seen" value="')[1].split('"')[0]
        freeze(there.cluster.pool, leave_out=1)
        answer = there.operator.post(
            _health(there), {"do": "accept_losses", "seen": seen, "reason": "gone"}
        )
        assert answer.status_code == 422
        said = answer.content.decode()
        assert "The set of missing leases has changed (2 now): check again" in said
        assert 'value="gone"' in said
        assert ExecutorHealth.objects.get().accepted == []
        assert not _records()

    def test_rejects_acceptance_if_no_lease_is_missing(self, there: Town) -> None:
        ExecutorHealth.objects.update(frozen_since=None)
        assert "losses-yes" not in page(there.operator, _health(there))
        answer = _post(there)
        assert answer.status_code == 422
        assert "This pool has no missing leases" in answer.content.decode()

    def test_is_for_operators_only(self, there: Town) -> None:
        typed = {"do": "accept_losses"}
        finance = visitor("fay", site_role=User.SiteRole.FINANCE)
        assert finance.post(_health(there), typed).status_code == 403
        assert there.owner.post(_health(there), typed).status_code == 404
        with pytest.raises(PermissionDenied):
            accept_losses(actor=Actor(User.objects.get(username="ada")), pool=there.cluster.pool)
        assert ExecutorHealth.objects.get().accepted == []

    def test_lease_listed_again_is_not_ended(self, there: Town) -> None:
        assert _post(there).status_code == 302
        # This round uses the pool's own executor, which lists the leases.
        there.play(1)
        assert ExecutorHealth.objects.get().frozen_since is None
        assert Lease.objects.filter(state="running").count() == 3


class TestAcceptLosses:
    def test_rejects_other_set_and_is_idempotent(self, there: Town) -> None:
        actor = Actor(User.objects.get(username="eve"))
        with pytest.raises(
            InvalidInputError, match="The set of missing leases has changed"
        ) as refused:
            accept_losses(actor=actor, pool=there.cluster.pool, seen="0" * 32)
        assert refused.value.is_conflict
        assert accept_losses(actor=actor, pool=there.cluster.pool) == (3, True)
        assert accept_losses(actor=actor, pool=there.cluster.pool) == (3, False)

    def test_audit_record_is_limited_to_200_tokens(self, there: Town) -> None:
        row = ExecutorHealth.objects.get()
        row.missing = {f"es-{number}-1": "" for number in range(1000, 1300)}
        row.save()
        actor = Actor(User.objects.get(username="eve"))
        assert accept_losses(actor=actor, pool=there.cluster.pool) == (300, True)
        (record,) = _records()
        assert record.after["leases"] == 300
        assert record.after["tokens"] == sorted(row.missing)[:200]


@pytest.mark.django_db
class TestApi:
    def test_lists_and_accepts_missing_leases(self) -> None:
        stage = operate_stage()
        path = f"operate/pools/{stage.pool}/losses"
        nothing = stage.get(path, as_="otto")
        assert nothing.json() == {"frozen_since": None, "launched": 0, "missing": []}
        refused = edit(stage, "POST", f"{path}/accept", {}, seen=path)
        assert (refused.status_code, refused.json()["reason_code"]) == (409, "conflict")
        job = stage.job()
        lease = Lease.objects.create(
            pool=stage.cluster.pool, tenant=job.tenant, job=job, number=1, state="running",
            gpu_type=stage.cluster.gpu_type, gpus=2, granted_round=1, placement=[],
            granted_at=stage.cluster.at, expires_at=stage.cluster.at, own=2, borrowed=0, price=0,
        )  # fmt: skip
        row = freeze(stage.cluster.pool)
        seen = tag(stage, path)
        shown = stage.get(path, as_="otto").json()
        assert shown["missing"] == [
            {
                "job": {"id": str(job.uid), "name": job.name}, "tenant": "aa", "lease": 1,
                "gpus": lease.gpus, "nodes": [], "accepted": False,
                "since": shown["missing"][0]["since"],
            }
        ]  # fmt: skip
        # Finance may read the console, but not tenants' jobs.
        assert stage.get(path, as_="fin").json()["missing"][0]["job"] is None
        row.missing = {**row.missing, "es-99-1": wall_now().isoformat()}
        row.save()
        assert edit(stage, "POST", f"{path}/accept", {}, seen=seen).status_code == 412
        for _ in range(2):
            made = edit(stage, "POST", f"{path}/accept", {"reason": "gone"}, seen=path)
            assert made.status_code == 200, made.content
            assert [one["accepted"] for one in made.json()["missing"]] == [True, True]
        assert len(_records()) == 1
