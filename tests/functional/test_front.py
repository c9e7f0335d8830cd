"""Test the front page, signing in and out, and the round line."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from portal.demo.names import FIRST_NAMES, readable_name
from portal.demo.philly import seed_demo
from scheduling.engine.clock import wall_now
from scheduling.models import PoolClock, PoolFence
from tenants.models import IdleOffer, Tenant, User
from tests.functional.visitors import town


@pytest.mark.django_db
class TestFrontPage:
    def test_shows_demo_logins_and_pool(self, client: Client) -> None:
        seed_demo()
        page = client.get("/")
        assert page.status_code == 200
        for role in ("researcher", "manager", "operator"):
            assert f'action="/demo/{role}/"'.encode() in page.content
        assert b"480 GPUs" in page.content
        assert b"appears after the first round" in page.content

    def test_without_pool_explains_seed_command(self, client: Client) -> None:
        page = client.get("/")
        assert page.status_code == 200
        assert b"manage.py seed_demo" in page.content
        assert b"Log in as Rosa" in page.content
        assert b"Sign in" not in page.content

    def test_redirects_to_login_in_production(self, client: Client, settings: Settings) -> None:
        settings.PRODUCTION = True
        assert client.get("/").headers["Location"] == "/login/"

    def test_redirects_users_to_their_start_page(self) -> None:
        place = town()
        assert place.owner.get("/").headers["Location"] == "/t/north/"
        assert place.operator.get("/").headers["Location"] == "/pools/pool-1/"

    def test_user_without_tenant_is_sent_to_account_page(self, client: Client) -> None:
        place = town()
        client.force_login(User.objects.create(username="solo"))
        assert client.get("/").headers["Location"] == "/account/"
        page = client.get("/account/").content.decode()
        assert "(no tenant)" in page
        assert "You belong to no tenant yet. Ask an operator or a manager." in " ".join(
            page.split()
        )
        assert "pool-1" not in page
        assert "pool-1" in place.owner.get("/account/").content.decode()
        # No link is a dead end.
        for address in set(re.findall(r'<a[^>]*href="(/[^"]*)"', page)):
            assert client.get(address, follow=True).status_code == 200, address


@pytest.mark.django_db
class TestDemo:
    def test_tenants_have_readable_names_with_trace_hashes(self) -> None:
        seed_demo()
        tenants = list(Tenant.objects.order_by("id"))
        assert len(tenants) == 11
        for tenant in tenants:
            found = re.fullmatch(r"[A-Z][a-z]+ \((\w{6})\)", tenant.name)
            assert found is not None, tenant.name
            assert tenant.slug == f"vc-{found[1]}"
        assert len({tenant.initials for tenant in tenants}) == len(tenants)
        assert [readable_name(place, "ab12cd") for place in (0, len(FIRST_NAMES))] == [
            ("Aspen (ab12cd)", "AS"),
            ("ab12cd", "AB"),
        ]

    def test_tour_has_a_stop_on_market_prices(self, client: Client) -> None:
        seed_demo()
        page = " ".join(client.get("/").content.decode().split())
        assert "Or take the tour: 8 stops in 8 minutes" in page
        (stop,) = re.findall(r'name="next" value="(/pools/market/[^"]*)"', page)
        there = client.post("/demo/operator/", {"next": stop})
        assert there.headers["Location"] == stop
        assert client.get(stop).status_code == 200

    def test_tour_has_a_stop_on_deadlines(self, client: Client) -> None:
        seed_demo()
        page = client.get("/").content.decode()
        (stop,) = re.findall(r'name="next" value="(/t/vc-7f04ca/jobs/[^"]*deadlines)"', page)
        assert client.post("/demo/researcher/", {"next": stop}).headers["Location"] == stop
        assert client.get(stop).status_code == 200

    def test_tour_has_a_stop_on_revocable_offers(self, client: Client) -> None:
        seed_demo()
        page = client.get("/").content.decode()
        (stop,) = re.findall(r'name="next" value="(/t/vc-6214e9/sharing/[^"]*)"', page)
        assert client.post("/demo/manager/", {"next": stop}).headers["Location"] == stop
        shown = client.get(stop).content.decode()
        assert "2 open offers of idle quota" in shown
        first = IdleOffer.objects.earliest("id")
        client.post(stop, {"act": "revoke", "offer": str(first.uid)})
        assert "1 open offer of idle quota" in client.get(stop).content.decode()

    def test_front_page_states_that_names_are_invented(self, client: Client) -> None:
        seed_demo()
        page = " ".join(client.get("/").content.decode().split())
        assert "only by a hash; we made up the names" in page


@pytest.mark.django_db
class TestDemoLogin:
    def test_signs_in_as_the_person_of_the_role(self, client: Client) -> None:
        seed_demo()
        assert client.post("/demo/researcher/").headers["Location"] == "/"
        assert client.get("/").headers["Location"] == "/t/vc-7f04ca/"

    def test_follows_only_local_redirects(self, client: Client) -> None:
        seed_demo()
        there = client.post("/demo/operator/", {"next": "/pools/philly/"})
        assert there.headers["Location"] == "/pools/philly/"
        away = client.post("/demo/operator/", {"next": "https://elsewhere.test/"})
        assert away.headers["Location"] == "/"

    def test_requires_post_and_known_role(self, client: Client) -> None:
        seed_demo()
        assert client.get("/demo/researcher/").status_code == 405
        assert client.post("/demo/nobody/").status_code == 404

    def test_returns_404_in_production(self, client: Client, settings: Settings) -> None:
        seed_demo()
        settings.PRODUCTION = True
        assert client.post("/demo/operator/").status_code == 404


@pytest.mark.django_db
class TestSession:
    def test_starts_with_password_and_ends_with_post(self, client: Client) -> None:
        seed_demo()
        known = {"username": "rosa", "password": "evenshare-demo"}
        assert client.post("/login/", known).headers["Location"] == "/"
        assert client.get("/logout/").status_code == 405
        assert client.post("/logout/").status_code == 302
        assert client.get("/t/vc-7f04ca/").headers["Location"].startswith("/login/")

    def test_links_to_demo_tour_outside_production(
        self, client: Client, settings: Settings
    ) -> None:
        seed_demo()
        client.post("/demo/researcher/")
        page = client.get(client.get("/").headers["Location"]).content.decode()
        tour = re.search(r'href="([^"]+)">About this demo<', page)
        assert tour is not None
        assert b"take the tour" in client.get(tour[1]).content
        settings.PRODUCTION = True
        assert client.get(tour[1]).status_code == 302

    def test_invalid_login_shows_error(self, client: Client) -> None:
        page = client.post("/login/", {"username": "rosa", "password": "no"})
        assert b"Wrong name or password" in page.content


@pytest.mark.django_db
class TestRoundLine:
    def test_is_visible_to_those_who_may_see_the_pool(self, settings: Settings) -> None:
        place = town()
        line = "/pools/pool-1/line/"
        for client in (place.owner, place.mate, place.neighbour, place.operator):
            assert client.get(line).status_code == 200
        assert place.outsider.get(line).status_code == 404
        assert place.operator.get("/pools/nowhere/line/").status_code == 404
        assert place.nobody.get(line).status_code == 200
        settings.PRODUCTION = True
        assert place.nobody.get(line).status_code == 404

    def test_returns_304_for_known_etag(self, client: Client) -> None:
        seed_demo()
        first = client.get("/pools/philly/line/")
        assert first.headers["Cache-Control"] == "no-cache"
        asked = {"If-None-Match": first.headers["ETag"]}
        again = client.get("/pools/philly/line/", headers=asked)
        assert again.status_code == 304
        assert again.content == b""

    def test_reports_late_rounds(self, client: Client) -> None:
        seed_demo()
        clock = PoolClock.objects.get(pool__name="philly")
        PoolFence.objects.update(last_checked_at=clock.anchor_pool - timedelta(hours=1))
        assert b'data-state="late"' in client.get("/pools/philly/line/").content

    def test_shows_pause_and_resumes_unwatched_pool(self, client: Client) -> None:
        seed_demo()
        PoolClock.objects.update(paused=True, pause_reason="unwatched")
        assert b'data-state="paused"' in client.get("/pools/philly/line/").content
        assert not PoolClock.objects.get(pool__name="philly").paused
        assert b'data-state="paused"' not in client.get("/pools/philly/line/").content

    def test_does_not_resume_pool_paused_for_another_reason(self, client: Client) -> None:
        seed_demo()
        PoolClock.objects.update(paused=True, pause_reason="maintenance", anchor_wall=wall_now())
        client.get("/pools/philly/line/")
        assert PoolClock.objects.get(pool__name="philly").paused


@pytest.mark.django_db
def test_unknown_page_returns_404_page(client: Client) -> None:
    page = client.get("/nothing/here/")
    assert page.status_code == 404
    assert b"Evenshare" in page.content
