"""Test in a language of accented and longer texts that no page has texts outside of catalogues."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.test import Client

from billing.models import Book
from evenshare_core.policies.options import describe_options
from evenshare_core.policies.registry import POLICIES
from scheduling.engine.executors.base import EXECUTORS
from scheduling.models import GpuType, Job, Node, Pool, Profile, Subscription, Sweep
from scheduling.requests.job_deadline import CLASSES
from tenants.models import ApiToken, Invitation, QuotaChangeRequest, Tenant, User
from tests.functional.access_table import TABLE
from tests.functional.addresses import fill, is_api, template_of
from tests.functional.crawl import asked, looks
from tests.functional.matrix_stage import Stage
from tests.functional.odd_stage import OddStage, odd_stage
from tests.functional.pseudo_locale import LANGUAGE, accented, untranslated, write_catalogues
from tests.stages import staged

there = staged(odd_stage)
NAMES = (
    *((Tenant, field) for field in ("name", "slug", "initials")),
    *((User, field) for field in ("username", "first_name")),
    *((Pool, field) for field in ("name", "policy")),
    *((model, "name") for model in (ApiToken, GpuType, Job, Node, Profile, Sweep)),
    *((Book, "slug"), (Invitation, "note"), (Subscription, "address")),
    *((QuotaChangeRequest, field) for field in ("reason", "answer")),
)
# Hashes, the names of languages and of the demo's people, terms, units, and what Django translates.
TERMS = (
    r"\b(?:[0-9a-f]{8,}|Mara|Otto|Rosa|API|CLI|CPUs?|CSV|Evenshare|GPUs?|JSON|MIG|REST|Slurm|UTC|YAML|min|rho|theta|ntfy"
    r"|English|Deutsch|bytes|January|highs|glop)\b"
    # A stored error.
    r"|ValueError: the deadline is not after the submission"
    # A round is not estimated inside of the test's transaction.
    r"|RuntimeError: A durable atomic block cannot be nested within another atomic block"
)


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_catalogues(tmp_path_factory.mktemp("catalogues"))


@pytest.fixture(autouse=True)
def pseudo(settings: LazySettings, catalogues: Path) -> None:
    settings.LOCALE_PATHS = [str(catalogues)]
    settings.LANGUAGES = [("en", "English"), (LANGUAGE, "Pseudo")]


def names() -> re.Pattern[str]:
    """Return a pattern of the names in the database, and of terms."""
    rows = {
        str(value)
        for model, field in NAMES
        for value in model._default_manager.values_list(field, flat=True)
    }
    choices = {
        choice
        for policy in POLICIES.values()
        for option in describe_options(policy.options_type)
        for choice in option.choices
    }
    rows |= {row.capitalize() for row in rows} | {*POLICIES, *EXECUTORS, *choices, *CLASSES}
    longest_first = sorted(filter(None, rows), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, longest_first), TERMS]))


def loose_texts(client: Client, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts outside of catalogues in these pages, each with the first of its pages."""
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = LANGUAGE
    known = names()
    loose: dict[str, str] = {}
    for path in paths:
        answer = asked(client, path)
        if answer.headers.get("Content-Type", "").startswith("text/html"):
            assert answer.headers["Content-Language"] == LANGUAGE, path
            for text in untranslated(answer.content.decode(), known):
                loose.setdefault(text, path)
    return loose


class TestPages:
    @pytest.mark.parametrize("actor", ["owner", "operator", "nobody"])
    def test_have_only_texts_of_catalogues(self, matrix: Stage, actor: str) -> None:
        paths = [
            fill(template_of(address, route), matrix.words)
            for address, route in TABLE.items()
            if "GET" in route.methods and not is_api(address)
        ]
        assert loose_texts(matrix.client(actor, api=False), paths) == {}

    @pytest.mark.parametrize("role", ["manager", "operator"])
    def test_have_only_texts_of_catalogues_in_odd_states(self, there: OddStage, role: str) -> None:
        paths = [look.path for look in looks(there.states) if not is_api(look.address)]
        assert loose_texts(there.client(role, api=False), paths) == {}


def test_accents_keep_values_and_markup() -> None:
    assert accented("<b>Held</b> {free:was|were} %(a)s &amp; {b}") == (
        "<b>Ĥéļđ</b> {free:ŵåš|ŵéŕé} %(a)s &amp; {b}····· ·"
    )
