"""Test the operator's console over HTTP: readers, editors and content of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver

from portal.operate.text.queue import queue
from portal.operate.urls import urlpatterns
from scheduling.models import (
    Intent,
    Job,
    MaintenanceWindow,
    Node,
    PoolClock,
    RoundFailure,
    Simulation,
)
from scheduling.selectors.operate.console import all_pools
from tenants.models import AuditRecord, Budget, DailySpend, Membership, Quota, Tenant, User
from tenants.models import QuotaChangeRequest as QuotaRequestRow
from tenants.scopes import site_scope
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged

Role = Membership.Role
DAY = timedelta(days=1)


def played_town() -> Town:
    made = town()
    made.submit()
    made.play(2)
    return made


there = staged(played_town)


READ_ONLY = (
    *("operate", "operate-audit", "operate-policies", "operate-quota-requests"),
    "operate-simulation",
)
# Finance may change these, too.
KEPT = ("operate-credit", "operate-credit-terms")
ACTS = (
    *("operate-release", "operate-quotas-undo", "operate-simulation-cancel"),
    "operate-simulation-show",
)


def addresses(there: Town) -> Iterator[tuple[str, str]]:
    """Yield every URL of the console, and its name."""
    job = Job.objects.first()
    assert job is not None
    one = Simulation.objects.create(
        pool=there.cluster.pool,
        asked_by=User.objects.get(username="eve"),
        policy="fifo",
        hours=6,
        asked_at=there.cluster.at,
    )
    values = {"name": there.cluster.pool.name, "slug": "north", "uid": str(job.uid)}
    values |= {"number": str(one.pk), "book": "main"}
    request = QuotaRequestRow.objects.create(
        tenant=there.tenant, pool=there.cluster.pool, gpu_type=there.cluster.gpu_type, gpus=5,
        quota_gpus=4, reason="a deadline", asked_by=User.objects.get(username="eve"),
    )  # fmt: skip
    for pattern in urlpatterns:
        of_request = f"quota-requests/{request.uid}"
        place = str(pattern.pattern).replace("quota-requests/<uuid:uid>", of_request)
        route = re.sub(r"<\w+:(\w+)>", lambda found: values[found[1]], place)
        yield f"/operate/{route}", str(pattern.name)


def page(client: Client, path: str, **data: str) -> str:
    answer = client.get(path, data)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return str(answer.content.decode())


class TestAccess:
    def test_site_roles_can_read_every_route(self, there: Town) -> None:
        people = {
            "operator": (there.operator, 200),
            "finance": (visitor("fin", site_role=User.SiteRole.FINANCE), 200),
            "auditor": (visitor("aud", site_role=User.SiteRole.AUDITOR), 200),
            "member": (there.owner, 404),
            "viewer": (there.mate, 404),
            "manager": (there.neighbour, 404),
            "manager elsewhere": (there.outsider, 404),
            "nobody": (there.nobody, 302),
        }
        for path, name in addresses(there):
            for who, (client, expected) in people.items():
                status = client.get(path).status_code
                assert (path, who, status) == (path, who, 405 if name in ACTS else expected)

    def test_only_operators_can_change(self, there: Town) -> None:
        people = {
            "finance": (visitor("fin", site_role=User.SiteRole.FINANCE), 403),
            "auditor": (visitor("aud", site_role=User.SiteRole.AUDITOR), 403),
            "manager": (there.neighbour, 404),
            "manager of it": (visitor("man", there.tenant, Role.MANAGER), 404),
            "nobody": (there.nobody, 302),
        }
        for path, name in addresses(there):
            for who, (client, expected) in people.items():
                status = client.post(path, {"do": "pause"}).status_code
                refused = 422 if name in KEPT and who == "finance" else expected
                assert (path, who, status) == (path, who, 405 if name in READ_ONLY else refused)
        assert set(AuditRecord.objects.values_list("action", flat=True)) == {"access.refused"}
        assert not PoolClock.objects.filter(paused=True).exists()

    def test_requires_csrf_token(self, there: Town) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.get(username="eve"))
        path = f"/operate/pools/{there.cluster.pool.name}/settings/"
        assert client.post(path, {"do": "pause"}).status_code == 403
        assert not PoolClock.objects.filter(paused=True).exists()

    def test_ends_when_role_is_removed(self, there: Town) -> None:
        assert there.operator.get("/operate/").status_code == 200
        User.objects.filter(username="eve").update(site_role="")
        assert there.operator.get("/operate/").status_code == 404

    def test_menu_links_console_only_for_operators(self, there: Town) -> None:
        path = f"/pools/{there.cluster.pool.name}/"
        assert 'href="/operate/"' in page(there.operator, path)
        assert 'href="/operate/"' not in page(there.owner, path)

    def test_unknown_objects_return_404(self, there: Town) -> None:
        for path in ("pools/none/quotas/", "tenants/none/"):
            assert there.operator.get(f"/operate/{path}").status_code == 404

    def test_tests_cover_every_console_route(self) -> None:
        names = {name for name in get_resolver().reverse_dict if isinstance(name, str)}
        assert {name for name in names if name.startswith("operate")} == {
            pattern.name for pattern in urlpatterns
        }


class TestAlerts:
    def test_are_empty_by_default(self, there: Town) -> None:
        assert headline(page(there.operator, "/operate/")) == "No open alerts."

    def test_list_everything_that_needs_attention(self, there: Town) -> None:
        pool = there.cluster.pool
        RoundFailure.objects.create(pool=pool, error="ValueError: no", count=4)
        Node.objects.filter(pool=pool, name="n0000").update(state="lost")
        Budget.objects.filter(tenant=there.tenant).update(credit_limit=5, reserved=5)
        aside = there.submit()
        Job.objects.filter(pk=aside.pk).update(quarantine="KeyError: 'x'")
        shown = page(there.operator, "/operate/")
        assert headline(shown) == "Five open alerts."
        kinds = [one.kind for one in there.operator.get("/operate/").context["alerts"]]
        assert kinds == ["bad", "bad", "warn", "warn", "warn"]
        for words in (
            f"4 rounds of {pool.name} failed since",
            "n0000 of",
            "Quotas of",
            "exceed its v100 GPUs by 4",
            "north has no spendable credits in main.",
            "The policy of",
        ):
            assert words in shown
        answer = there.operator.post(f"/operate/jobs/{aside.uid}/release/", follow=True)
        assert headline(answer.content.decode()) == "Four open alerts."

    @pytest.mark.parametrize(
        ("action", "spent", "words"),
        [
            ("block", 80, ""),
            ("block", 100, "Borrowing has stopped. When the budget is used up: nothing more"),
            ("warn", 100, "Borrowing continues. When the budget is used up: notice;"),
            ("warn", 120, "Borrowing has stopped. When the budget is used up: notice;"),
        ],
    )
    def test_name_exhausted_budgets(self, there: Town, action: str, spent: int, words: str) -> None:
        at = there.cluster.at
        Budget.objects.filter(tenant=there.tenant).update(period_amount=100, period_action=action)
        DailySpend.objects.create(
            tenant=there.tenant, book="main", day=at.date(), amount=Decimal(spent)
        )
        # Another month's spending does not count in this budget.
        DailySpend.objects.create(
            tenant=there.tenant, book="main", day=(at - 40 * DAY).date(), amount=500
        )
        shown = page(there.operator, "/operate/")
        if not words:
            assert headline(shown) == "No open alerts."
            return
        assert headline(shown) == "One open alert."
        assert f"north used {spent} % of its budget in main." in shown
        assert f"Of 100.00 credits for {at:%Y-%m}-01 to {at:%Y-%m}-" in shown
        assert words in shown
        assert "/operate/credit/north/main/" in shown

    def test_query_count_is_fixed_per_pool(
        self, there: Town, django_assert_num_queries: Any
    ) -> None:
        pool, at = there.cluster.pool, there.cluster.at
        with site_scope():
            pools = sorted(all_pools(), key=lambda facts: facts.id != pool.pk)
            now = {facts.id: at for facts in pools}
            for count in (1, 2):
                with django_assert_num_queries(11 + 2 * count):
                    queue(pools[:count], dict(list(now.items())[:count]), with_jobs=True)
            Intent.objects.filter(pool=pool).update(state=Intent.State.OPEN, at=at - DAY)
            with django_assert_num_queries(14):
                queue(pools[:1], {pool.pk: at}, with_jobs=True)


class TestTenants:
    def test_are_created_with_members(self, there: Town) -> None:
        made = {"slug": "climate", "name": "Climate", "initials": "cl"}
        answer = there.operator.post("/operate/tenants/", made)
        assert answer["Location"] == "/operate/tenants/climate/"
        tenant = Tenant.objects.get(slug="climate")
        assert tenant.initials == "CL"
        assert tenant.budgets.get().book == "main"
        add = {"do": "add", "username": "ada", "role": "manager"}
        assert there.operator.post(answer["Location"], add).status_code == 302
        assert Membership.objects.get(tenant=tenant).role == "manager"

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (
                {"do": "add", "username": "nobody-here", "role": "member"},
                "There is no such person",
            ),
            ({"do": "add", "username": "ada", "role": "member"}, "is already a member"),
            ({"do": "add", "username": "cem", "role": "king"}, "Choose viewer, member or manager"),
            ({"do": "role", "username": "dag", "role": "member"}, "is not a member"),
            ({"do": "fly", "username": "ada"}, "Unknown action"),
        ],
    )
    def test_invalid_change_shows_error_and_changes_nothing(
        self, there: Town, data: dict[str, str], words: str
    ) -> None:
        answer = there.operator.post("/operate/tenants/north/", data)
        assert answer.status_code == 422
        assert words in answer.content.decode()
        assert Membership.objects.filter(tenant=there.tenant).count() == 2

    def test_keep_their_last_manager(self, there: Town) -> None:
        data = {"do": "remove", "username": "cem"}
        answer = there.operator.post("/operate/tenants/south/", data)
        assert "The last manager cannot be removed" in answer.content.decode()
        assert Membership.objects.filter(user__username="cem").exists()

    def test_ignore_fields_outside_the_form(self, there: Town) -> None:
        """Mass assignment: a site role in the posted form of a membership changes no user."""
        data = {"do": "add", "username": "dag", "role": "member", "site_role": "operator"}
        there.operator.post("/operate/tenants/north/", {**data, "is_superuser": "1"})
        user = User.objects.get(username="dag")
        assert (user.site_role, user.is_superuser, user.is_staff) == ("", False, False)


class TestPeople:
    def test_initial_password_is_shown_once(self, there: Town) -> None:
        data = {"username": "nina", "first_name": "Nina", "site_role": "", "is_superuser": "1"}
        answer = there.operator.post("/operate/people/", data)
        shown = answer.content.decode()
        found = re.search(r'<code id="[^"]+">([\w-]{20})</code>', shown)
        assert found is not None
        assert "no-store" in answer["Cache-Control"]
        user = User.objects.get(username="nina")
        assert user.check_password(found[1])
        assert not user.is_superuser
        assert found[1] not in page(there.operator, "/operate/people/")
        assert found[1] not in page(there.operator, "/operate/audit/")
        assert there.nobody.login(username="nina", password=found[1])


class TestPages:
    def test_nodes_page_drains_removes_and_adds_nodes(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/nodes/"
        there.operator.post(path, {"do": "drain", "node": "n0001", "reason": "fan"})
        assert headline(page(there.operator, path)) == "1 of 2 nodes are schedulable."
        there.operator.post(path, {"do": "remove", "node": "n0001"})
        assert Node.objects.filter(pool=there.cluster.pool).count() == 1
        add = {"do": "add", "name": "n9", "gpu_type": "a100", "gpus": "8"}
        assert there.operator.post(path, add).status_code == 302
        answer = there.operator.post(path, {**add, "gpus": "many"})
        assert answer.status_code == 422
        assert "Enter 1 to 1,024." in answer.content.decode()

    def test_planned_maintenance_appears_on_pool_page(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/nodes/"
        begins, ends = there.cluster.at + timedelta(minutes=10), there.cluster.at + DAY
        data = {
            "do": "window",
            "nodes": ["n0001"],
            "starts_at": f"{begins:%Y-%m-%d %H:%M:%S}",
            "ends_at": f"{ends:%Y-%m-%d %H:%M:%S}",
            "reason": "new fans",
        }
        assert there.operator.post(path, data).status_code == 302
        assert MaintenanceWindow.objects.get().starts_at == begins
        for who in (there.operator, there.owner):
            shown = page(who, f"/pools/{pool.name}/")
            assert "takes no new lease: its maintenance begins" in shown
            assert "new fans" in shown
        answer = there.operator.post(path, {**data, "starts_at": "soon", "nodes": ["n7"]})
        assert "Choose nodes of this pool." in answer.content.decode()
        assert "Enter date and time" in answer.content.decode()

    def test_health_page_shows_escaped_round_failure(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/health/"
        assert headline(page(there.operator, path)) == f"Rounds of {pool.name} are on time."
        RoundFailure.objects.create(pool=pool, error="ValueError: <script>", count=2)
        shown = page(there.operator, path)
        assert headline(shown) == f"Rounds of {pool.name} fail."
        assert "&lt;script&gt;" in shown

    def test_audit_page_supports_paging_and_filters(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/nodes/"
        for n in range(60):
            act = {"do": "resume" if n % 2 else "drain", "node": "n0001", "reason": "fan"}
            there.operator.post(path, act)
        there.operator.post("/operate/people/", {"username": "nina"})
        shown = page(there.operator, "/operate/audit/")
        assert shown.count('<tr id="a-') == 50
        assert headline(shown) == "The newest 50 entries, by 1 person."
        older = re.search(r'href="\?before=(\d+)"', shown)
        assert older is not None
        assert page(there.operator, "/operate/audit/", before=older[1]).count('<tr id="a-') == 11
        found = page(there.operator, "/operate/audit/", action="person.", actor="eve")
        assert found.count('<tr id="a-') == 1
        assert "person nina" in found
        assert "No matching changes" in page(there.operator, "/operate/audit/", subject="mars")


class TestQuotaGrid:
    def path(self, there: Town) -> str:
        return f"/operate/pools/{there.cluster.pool.name}/quotas/"

    def draft(self, there: Town, since: str = "now", **cells: str) -> dict[str, str]:
        """Return the grid's form with some cells of north changed."""
        shown = page(there.operator, self.path(there), since=since)
        fields = dict(re.findall(r'<input name="([\w-]+)" id="[\w-]+" value="([^"]*)"', shown))
        for name in re.findall(r'<select name="(mode-[\w-]+)"', shown):
            fields[name] = "LEND_AND_BORROW"
        basis = re.search(r'name="basis" value="(\w+)"', shown)
        assert basis is not None
        key = f"{there.tenant.pk}-{there.cluster.gpu_type.pk}"
        typed = {f"{name}-{key}": value for name, value in cells.items()}
        return {**fields, "since": since, "basis": basis[1], **typed}

    def previewed(self, there: Town, draft: dict[str, str]) -> tuple[str, dict[str, str]]:
        answer = there.operator.post(self.path(there), {**draft, "do": "preview"})
        assert answer.status_code == 200, answer.content.decode()
        shown = answer.content.decode()
        digest = re.search(r'name="previewed" value="(\w+)"', shown)
        return shown, {**draft, "do": "save", "previewed": digest[1] if digest else ""}

    def rows(self, there: Town) -> list[tuple[int, Any]]:
        quotas = Quota.objects.filter(tenant=there.tenant).order_by("valid_from")
        return list(quotas.values_list("gpus", "valid_until"))

    def test_shows_allocated_and_unallocated_gpus(self, there: Town) -> None:
        assert headline(page(there.operator, self.path(there))).startswith("All 8 GPUs are")
        Quota.objects.filter(tenant=there.tenant).update(gpus=1)
        shown = page(there.operator, self.path(there))
        assert "5 of 8 GPUs are allocated as quota" in headline(shown)
        assert "3 unallocated" in shown
        Quota.objects.filter(tenant=there.tenant).update(gpus=7)
        shown = page(there.operator, self.path(there))
        assert headline(shown) == "Quotas exceed the pool by 3 GPUs."
        assert "3 too many: scaled down" in shown

    def test_saves_previewed_change_and_undoes_it(self, there: Town) -> None:
        tomorrow = f"{there.cluster.at + DAY:%Y-%m-%d} 00:00"
        shown, save = self.previewed(there, self.draft(there, tomorrow, gpus="6"))
        assert "An estimate, not a promise." in shown
        assert "<s>4</s>" in shown
        assert "2 too many: scaled down" in shown
        assert self.rows(there) == [(4, None)]
        answer = there.operator.post(self.path(there), save, follow=True)
        assert [gpus for gpus, _ in self.rows(there)] == [4, 6]
        assert "You can undo this until round" in answer.content.decode()
        there.operator.post(self.path(there) + "undo/", follow=True)
        assert self.rows(there) == [(4, None)]
        log = page(there.operator, "/operate/audit/")
        assert "changed quotas" in log
        assert "undid a change of quotas" in log

    def test_rejects_save_without_matching_preview(self, there: Town) -> None:
        draft = self.draft(there, gpus="6")
        answer = there.operator.post(self.path(there), {**draft, "do": "save"})
        assert "check the new preview first" in answer.content.decode()
        _, save = self.previewed(there, draft)
        other = next(name for name in save if name.startswith("gpus-"))
        answer = there.operator.post(self.path(there), {**save, other: "8"})
        assert "check the new preview first" in answer.content.decode()
        assert self.rows(there) == [(4, None)]

    def test_invalid_cell_shows_error(self, there: Town) -> None:
        Quota.objects.filter(tenant=there.tenant).update(valid_until=there.cluster.at + 9 * DAY)
        Quota.objects.create(
            tenant=there.tenant,
            pool=there.cluster.pool,
            gpu_type=there.cluster.gpu_type,
            gpus=5,
            valid_from=there.cluster.at + 9 * DAY,
        )
        draft = self.draft(there, gpus="six", until="")
        answer = there.operator.post(self.path(there), {**draft, "do": "preview"})
        assert answer.status_code == 422
        assert "Enter a whole number." in answer.content.decode()
        draft = self.draft(there, gpus="6", until="")
        answer = there.operator.post(self.path(there), {**draft, "do": "preview"})
        assert "A period with 5 GPUs begins" in answer.content.decode()

    def test_rejects_past_or_invalid_start(self, there: Town) -> None:
        shown = page(there.operator, self.path(there), since="2001-01-01")
        assert "This is in the past" in shown
        assert "Enter date and time" in page(there.operator, self.path(there), since="soon")

    def test_assigns_first_quota_to_tenant(self, there: Town) -> None:
        island = there.elsewhere.tenants["island"]
        shown = page(there.operator, self.path(there), tenant="island")
        key = f"{island.pk}-{there.cluster.gpu_type.pk}"
        assert f'name="gpus-{key}"' in shown
        draft = {**self.draft(there), f"gpus-{key}": "2", f"mode-{key}": "RESERVE"}
        draft |= {f"borrow-{key}": "", f"lend-{key}": "", f"until-{key}": ""}
        _, save = self.previewed(there, draft)
        there.operator.post(self.path(there), save)
        quota = Quota.objects.get(tenant=island, pool=there.cluster.pool)
        assert (quota.gpus, quota.mode, quota.borrow_limit) == (2, "RESERVE", None)

    def test_is_read_only_for_auditor(self, there: Town) -> None:
        auditor = visitor("aud", site_role=User.SiteRole.AUDITOR)
        shown = page(auditor, self.path(there))
        assert "You have read-only access." in shown
        assert "Preview" not in shown
