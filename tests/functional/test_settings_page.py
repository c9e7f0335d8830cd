"""The page of a pool's settings: its fields with their help, the preview, and saving."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.utils.html import escape

from evenshare_core.money.fixed_point import to_credits
from evenshare_core.policies.options import describe_options
from evenshare_core.policies.registry import DEFAULT, POLICIES
from scheduling.models import PriceSetting
from tenants.models import AuditRecord
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town
from tests.round_states import left_by
from tests.stages import staged

NO_BOUNDS = {"least_lease_s": "0", "most_lease_s": "0", "profiling_s": "0"}


def played_town() -> Town:
    made = town()
    made.submit()
    made.play(2)
    return made


there = staged(played_town)


class TestSettings:
    @pytest.mark.parametrize("policy", [DEFAULT, "ltgf"])
    def test_show_every_option_with_its_range(self, there: Town, policy: str) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/settings/"
        shown = page(there.operator, f"{path}?policy={policy}")
        for option in describe_options(POLICIES[policy].options_type):
            assert escape(option.description) in shown
        assert "Range: 0 to 1,000. Default: " in shown
        assert "Default: 86,400 (1 d)." in shown
        assert ("lease lengths" in shown) == (policy == "ltgf")
        assert POLICIES[policy].quota_text in shown
        assert not re.search(r"eq\. \(|line \d+|\(\d+\.\d", shown)
        assert "0.4142" in shown  # the price at half use for a theta of 2

    def test_save_valid_values_and_explain_invalid_ones(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/settings/"
        data = {
            "do": "settings",
            "policy": "ltgf",
            "round_s": "20",
            "lease_s": "600",
            "grace_s": "30",
            "outage_grace_s": "3600",
            "idle_warn_s": "1800",
            "idle_return_s": "0",
            "least_lease_s": "300",
            "most_lease_s": "0",
            "profiling_s": "240",
            "visibility": "own",
            "option-spread": "yes",
            "option-lease_bonus": "0.5",
            "name": "stolen",
            "book": "other",
        }
        assert there.operator.post(path, data).status_code == 302
        pool.refresh_from_db()
        assert (pool.round_s, pool.visibility, pool.options["lease_bonus"]) == (20, "own", 0.5)
        assert (pool.name, pool.book) != ("stolen", "other")
        answer = there.operator.post(path, {**data, "option-lease_bonus": "lots", "round_s": "x"})
        shown = answer.content.decode()
        assert answer.status_code == 422
        assert "Enter a number from 0 to" in shown
        assert "Enter 1 to 3,600 seconds." in shown
        pool.refresh_from_db()
        assert (pool.least_lease_s, pool.most_lease_s, pool.profiling_s) == (300, 0, 240)
        assert AuditRecord.objects.get().after["least_lease_s"] == 300
        bad = {**data, "least_lease_s": "601", "most_lease_s": "599"}
        answer = there.operator.post(path, bad)
        shown = answer.content.decode()
        assert answer.status_code == 422
        assert "Enter at most the lease length, 600, or 0 for no bound." in shown
        assert "Enter at least the lease length, 600, or 0 for no bound." in shown

    def test_fold_groups_and_name_what_differs(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/settings/"

        def groups(shown: str) -> dict[str, tuple[bool, str]]:
            """Return, by title, whether a group is open, and the text next to its title."""
            rows = re.findall(
                r'<details\s+class="more"[^>]*?(open)?\s*>\s*<summary>\s*(.*?)\s*<span'
                r' class="set">(.*?)</span>',
                shown,
                re.DOTALL,
            )
            return {title: (bool(is_open), " ".join(text.split())) for is_open, title, text in rows}

        pool.lease_s, pool.idle_warn_s = 900, 60
        pool.save()
        rest = groups(page(there.operator, path))
        assert rest["Idle GPUs"] == (False, "Idle GPUs, warning 60 s of the pool")
        assert rest["Profiling and visibility"] == (False, "defaults")
        assert not any(is_open for is_open, _ in rest.values())
        for data, opened in (
            ({"do": "settings", "policy": "ltgf", "idle_warn_s": "x"}, "Idle GPUs"),
            ({"do": "settings", "policy": "ltgf", "option-lease_bonus": "x"}, "Options of ltgf"),
            (
                {"do": "price", "gpu_type": "v100", "base": "x", "theta": "2"},
                "Price of a borrowed GPU-hour",
            ),
        ):
            answer = there.operator.post(path, data)
            assert answer.status_code == 422
            assert groups(answer.content.decode())[opened][0], opened
        suggested = groups(page(there.operator, f"{path}?lease_s=1800"))
        assert [title for title, (is_open, _) in suggested.items() if is_open] == [
            "Rounds and leases"
        ]

    def test_reject_reason_longer_than_audit_log_keeps(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/settings/"
        lengths = {
            "round_s": "20",
            "lease_s": "600",
            "grace_s": "30",
            "outage_grace_s": "3600",
            "idle_warn_s": "1800",
            "idle_return_s": "0",
        }
        lengths |= NO_BOUNDS
        data = {"do": "settings", "policy": "ltgf", "visibility": "own", **lengths}
        answer = there.operator.post(path, {**data, "reason": "x" * 201})
        assert answer.status_code == 422
        assert "Enter at most 200 characters." in answer.content.decode()
        pool.refresh_from_db()
        assert pool.visibility != "own"
        assert not AuditRecord.objects.exists()
        assert there.operator.post(path, {**data, "reason": "x" * 200}).status_code == 302
        assert AuditRecord.objects.get().reason == "x" * 200

    def test_save_surcharge_and_keep_it_if_form_omits_it(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/settings/"
        price = {"do": "price", "gpu_type": "v100", "base": "2.5", "theta": "3"}
        there.operator.post(path, {**price, "surcharge_cap": "4", "surcharge_step": "2.5"})
        there.operator.post(path, {**price, "base": "2"})
        setting = PriceSetting.objects.get(pool=there.cluster.pool)
        assert setting.base == 2
        assert (setting.surcharge_cap, setting.surcharge_step) == (Decimal(4), Decimal("2.5"))
        page = there.operator.get(path).content.decode()
        assert 'name="surcharge_cap"' in page
        assert 'value="2.5"' in page
        wrong = there.operator.post(path, {**price, "surcharge_step": "200"})
        assert wrong.status_code == 422
        assert "Enter 0.1 to 100" in wrong.content.decode()

    def test_unchanged_values_are_not_saved_or_audited(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/settings/"
        lengths = {
            "round_s": "20",
            "lease_s": "600",
            "grace_s": "30",
            "outage_grace_s": "3600",
            "idle_warn_s": "1800",
            "idle_return_s": "0",
        }
        lengths |= NO_BOUNDS
        price = {"do": "price", "gpu_type": "v100", "base": "2.5", "theta": "3"}
        data = {"do": "settings", "policy": "ltgf", "visibility": "own", **lengths}
        for form in ({**data, "reason": "shorter leases"}, price):
            first = there.operator.post(path, form, follow=True).content.decode()
            again = there.operator.post(path, {**form, "reason": "once more"}, follow=True)
            assert ("Saved: the next round" in first, "No changes" in first) == (True, False)
            assert "No changes, so nothing was saved." in again.content.decode()
            assert "Saved: the next round" not in again.content.decode()
        actions = AuditRecord.objects.order_by("id").values_list("action", "reason")
        assert list(actions) == [("pool.changed", "shorter leases"), ("price.changed", "")]

    def test_preview_next_round_without_saving(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/settings/"
        data = {"do": "preview", "policy": "fifo", "visibility": "own", "reason": "why not"}
        lengths = {
            "round_s": "10",
            "lease_s": "1200",
            "grace_s": "30",
            "outage_grace_s": "60",
            "idle_warn_s": "1800",
            "idle_return_s": "0",
        }
        lengths |= NO_BOUNDS
        answer = there.operator.post(path, {**data, **lengths})
        shown = answer.content.decode()
        assert answer.status_code == 200
        assert "If these settings held in round 3" in shown
        assert "Leases granted" in shown
        assert 'value="1200"' in shown  # the input stays in the form
        assert 'value="why not"' in shown
        pool.refresh_from_db()
        assert (pool.policy, pool.lease_s) == (DEFAULT, there.cluster.pool.lease_s)
        wrong = there.operator.post(path, {**data, **lengths, "lease_s": "0"}, HTTP_HX_REQUEST="y")
        assert wrong.status_code == 200  # htmx shows only answers with status 200
        assert "No preview" in wrong.content.decode()
        assert "Lease length: Enter 1 to" in wrong.content.decode()

    def test_show_price_at_current_use(self, there: Town) -> None:
        pool = there.cluster.pool
        posted = left_by(pool).prices[0]
        shown = page(there.operator, f"/operate/pools/{pool.name}/settings/")
        assert f"now, {posted['used']} of {posted['capacity']} GPUs used" in shown
        cells = re.findall(r'data-use="[\d.]+">([\d.,]+)<', shown)
        assert cells[-1] == f"{to_credits(posted['price_micro']):.4f}"
