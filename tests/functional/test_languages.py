"""Pages in German: the reader's choice, numbers, scripts, and what stays English."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.conf import LazySettings
from django.template.loader import render_to_string
from django.test import Client
from django.utils import translation

from portal.charts.figures import plural, relative, thousands
from portal.rounds.text.round import note_name
from scheduling.models import Simulation
from scheduling.selectors.stored_texts import STORED
from tenants.models import User

pytestmark = pytest.mark.django_db
GERMAN = {"Accept-Language": "fr, de-CH;q=0.9, en;q=0.8"}


@pytest.fixture
def client(settings: LazySettings) -> Client:
    """Return a client of a site with both languages."""
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    return Client()


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


class TestLanguage:
    def test_is_the_browsers(self, client: Client) -> None:
        answer = client.get("/login/", headers=GERMAN)
        assert answer.headers["Content-Language"] == "de"
        assert {"Accept-Language", "Cookie"} <= set(re.split(", ?", answer.headers["Vary"]))
        assert '<html lang="de">' in text_of(answer)
        assert "Zum Inhalt springen" in text_of(answer)

    def test_is_english_without_preference(self, client: Client) -> None:
        assert '<html lang="en">' in text_of(client.get("/login/"))

    def test_of_rest_is_english(self, client: Client) -> None:
        answer = client.get("/api/v1/jobs", headers=GERMAN)
        assert "Content-Language" not in answer.headers
        assert answer.json()["detail"] == client.get("/api/v1/jobs").json()["detail"]

    def test_of_pages_about_the_api_is_the_browsers(self, client: Client) -> None:
        page = text_of(client.get("/api/v1/docs", headers=GERMAN))
        assert "Die REST-API hat" in page
        assert "Cancel a job" in page
        resource = text_of(client.get("/api/v1/docs/jobs", headers=GERMAN))
        assert "Ablehnungen:" in resource

    def test_reaches_scripts(self, client: Client) -> None:
        found = re.search(
            r'<script id="script-texts"[^>]*>(.*?)</script>',
            text_of(client.get("/login/", headers=GERMAN)),
        )
        assert found
        assert json.loads(found[1])["{time} ago"] == "vor {time}"
        assert "script-texts" not in text_of(client.get("/login/"))


class TestChoice:
    def test_names_each_language_in_itself(self, client: Client) -> None:
        assert re.search(
            r'value="en"\s+lang="en"\s*>\s*English', text_of(client.get("/login/", headers=GERMAN))
        )

    def test_of_visitor_is_kept_by_the_browser(self, client: Client) -> None:
        answer = client.post("/language/", {"language": "de", "next": "/login/?a=1"})
        assert answer.headers["Location"] == "/login/?a=1"
        assert '<html lang="de">' in text_of(client.get("/login/"))

    def test_of_person_is_kept_in_the_account(self, client: Client) -> None:
        person = User.objects.create_user("ines")
        client.force_login(person)
        client.post("/language/", {"language": "de"})
        client.cookies.clear()
        client.force_login(person)
        assert '<html lang="de">' in text_of(client.get("/account/"))
        client.post("/language/", {"language": "en"})
        assert '<html lang="en">' in text_of(client.get("/account/", headers=GERMAN))

    @pytest.mark.parametrize("next_page", ["https://evil.example/", "//evil.example/", "\\evil"])
    def test_returns_only_to_this_site(self, client: Client, next_page: str) -> None:
        answer = client.post("/language/", {"language": "de", "next": next_page})
        assert answer.headers["Location"] == "/"

    @pytest.mark.parametrize("language", ["fr", "", "../de", "de\x00"])
    def test_of_unknown_language_is_not_found(self, client: Client, language: str) -> None:
        assert client.post("/language/", {"language": language}).status_code == 404
        assert "django_language" not in client.cookies


class TestFormats:
    def test_follow_the_language(self, client: Client) -> None:
        with translation.override("de"):
            assert thousands(-1234.5, 1) == "\N{MINUS SIGN}1.234,5"
            assert plural(1200, "job") == "1.200 Jobs"
            assert relative(540) == "vor 9 min"

    def test_of_attributes_do_not(self, client: Client) -> None:
        from django.template import Context, Template

        with translation.override("de"):
            assert Template("{{ x }}").render(Context({"x": 1.5})) == "1.5"


class TestStoredTexts:
    def test_are_recognized_with_their_values(self) -> None:
        for template in STORED.templates:
            values = {name: f"<{name}>" for name in re.findall(r"{(\w+)}", template)}
            stored = template.format(**values)
            assert STORED.shown(stored) == stored
            with translation.override("de"):
                expected = translation.gettext(template).format(**values)
                assert STORED.shown(stored) == expected
                sentence = f"{stored[:1].upper()}{stored[1:]}."
                assert STORED.shown(sentence).casefold() == f"{expected}.".casefold()

    @pytest.mark.parametrize(
        ("stored", "shown"),
        [
            ("412 job types are more than the 400 that a round measures", "als die 400, die"),
            ("Jobs in quarantine, which are skipped: 1,204.", "ausgelassen werden: 1.204."),
            (
                (
                    "Pool a has no job to simulate that was submitted in the last 7 days of its"
                    " time; take more days."
                ),
                "in den letzten 7 Tagen",
            ),
            ("usage.0.json of lease 2 is longer than 262144 bytes", "ist länger als 262144 Bytes"),
            ("sbatch: error: Batch job submission failed", "sbatch: error: Batch job submission"),
        ],
    )
    def test_have_german_numbers_and_parts(self, stored: str, shown: str) -> None:
        with translation.override("de"):
            assert shown in STORED.shown(stored)

    def test_are_german_on_pages(self) -> None:
        error = "The pool's policy changed after the request. Start the replay again."
        row = Simulation(state=Simulation.State.FAILED, error=error)
        with translation.override("de"):
            page = render_to_string("operate/_simulation_state.html", {"one": row, "percent": 0})
            assert "Starten Sie die Wiederholung neu." in page
            assert note_name("large gang") == "große Gang"
