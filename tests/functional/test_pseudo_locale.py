"""Test in a language of accented and longer texts that no page has texts outside of catalogues.

The test goes through the pages of a usual pool, and through all URLs in rare states, where it also
looks for server errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import LazySettings

from tests.functional.access_table import TABLE
from tests.functional.addresses import fill, is_api, template_of
from tests.functional.crawl import asked, looks
from tests.functional.matrix_stage import Stage
from tests.functional.odd_stage import ROLES, OddStage, odd_stage
from tests.functional.pseudo_locale import LANGUAGE, accented, names, untranslated, write_catalogues
from tests.functional.turns import dealt, some_turns
from tests.stages import staged

there = staged(odd_stage)


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_catalogues(tmp_path_factory.mktemp("catalogues"))


@pytest.fixture(autouse=True)
def pseudo(settings: LazySettings, catalogues: Path) -> None:
    settings.LOCALE_PATHS = [str(catalogues)]
    settings.LANGUAGES = [("en", "English"), (LANGUAGE, "Pseudo")]


class TestPages:
    @pytest.mark.parametrize("actor", ["owner", "operator", "nobody"])
    def test_have_only_texts_of_catalogues(self, matrix: Stage, actor: str) -> None:
        client, known = matrix.client(actor, api=False), names()
        loose: dict[str, str] = {}
        client.defaults["HTTP_ACCEPT_LANGUAGE"] = LANGUAGE
        for address, route in TABLE.items():
            if "GET" in route.methods and not is_api(address):
                path = fill(template_of(address, route), matrix.words)
                for text in untranslated(asked(client, path), known):
                    loose.setdefault(text, path)
        assert loose == {}


class TestOddStates:
    @pytest.mark.parametrize("turn", some_turns(1, of=len(ROLES)))
    def test_no_url_fails_or_has_other_texts(self, there: OddStage, turn: int) -> None:
        """A role that may see most pages requests each URL of a state, and another one in turn."""
        every = list(looks(there.states))
        assert {look.address for look in every} > {
            address for address, route in TABLE.items() if "{pool}" in route.query
        }
        known = names()
        wrong: dict[str, str] = {}
        for row, look in enumerate(every):
            sees = "operator" if look.address.startswith("operate/") else "manager"
            for role in {sees, *dealt(ROLES, row, turn, of=len(ROLES))}:
                client = there.client(role, api=is_api(look.address))
                client.defaults["HTTP_ACCEPT_LANGUAGE"] = LANGUAGE
                answer = asked(client, look.path)
                where = f"{look.path} ({look.state}, {role})"
                if answer.status_code >= 500:
                    wrong[where] = str(answer.status_code)
                texts = () if is_api(look.address) else untranslated(answer, known)
                wrong |= {text: where for text in texts if text not in wrong}
        assert wrong == {}


def test_accents_keep_values_and_markup() -> None:
    assert accented("<b>Held</b> {free:was|were} %(a)s &amp; {b}") == (
        "<b>Ĥéļđ</b> {free:ŵåš|ŵéŕé} %(a)s &amp; {b}····· ·"
    )
