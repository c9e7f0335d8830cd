"""Forms store only English texts, whatever the language of their pages."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from babel.messages.pofile import read_po
from django.apps import apps
from django.conf import LazySettings
from django.db import models
from django.test import Client

from portal.site.settings import LOCALE_PATHS
from scheduling.models import Job
from tenants.models import AuditRecord, IdleOffer, Membership
from tests.functional.visitors import Town, town, visitor

pytestmark = pytest.mark.usefixtures("committed_db")
APPS = ("tenants", "scheduling", "billing")
TEXTS = (models.CharField, models.TextField, models.JSONField)
# A shorter part of a German text may also be a word of another language.
LEAST = 12
Posts = Iterator[tuple[Client, str, dict[str, Any]]]


def german() -> set[str]:
    """Return the German texts of all catalogues, up to their first value."""
    found = set()
    for folder in LOCALE_PATHS:
        catalogue = Path(folder) / "de" / "LC_MESSAGES" / "django.po"
        for entry in read_po(io.BytesIO(catalogue.read_bytes()), locale="de"):
            texts = (entry.string,) if isinstance(entry.string, str) else entry.string or ()
            parts = [text.partition("%(")[0].partition("{")[0].strip() for text in texts]
            found |= {part for part in parts if len(part) >= LEAST and part not in str(entry.id)}
    return found


def stored() -> str:
    """Return all texts of all rows as one text."""
    parts: list[str] = []
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            columns = [one.attname for one in model._meta.concrete_fields if isinstance(one, TEXTS)]
            if columns:
                parts += map(str, model._default_manager.values_list(*columns))
    return "\n".join(parts)


def posts(place: Town, manager: Client) -> Posts:
    """Yield posts of the main forms, valid and refused."""
    operator, owner = place.operator, place.owner
    nodes, tenant = "/operate/pools/pool-1/nodes/", "/operate/tenants/north/"
    new, sharing = "/t/north/jobs/new/", "/t/north/sharing/?pool=pool-1"
    form = {"side": "form", "pool": "pool-1", "act": "submit", "key": "one"}
    yield owner, new, {**form, "gpus": "2", "name": "train", "comment": "first"}
    yield owner, new, {**form, "key": "two", "gpus": "900"}
    yield owner, new, {**form, "gpus": "x", "max_price": "-1", "deadline": "never"}
    for job in Job.objects.all():
        for action in ("hold", "release", "tag", "priority", "cancel", "cancel"):
            more = {"action": action, "job": [str(job.uid)], "tags": "a", "priority": "-1"}
            yield owner, "/t/north/jobs/act/", {**more, "asked": "1"}
    yield operator, nodes, {"do": "remove", "node": "n0001"}
    yield operator, nodes, {"do": "drain", "node": "n0001", "reason": "fan"}
    yield operator, nodes, {"do": "drain", "node": "n0001", "reason": ""}
    yield operator, nodes, {"do": "resume", "node": "n0001"}
    yield operator, nodes, {"do": "add", "name": "n9", "gpu_type": "a100", "gpus": "8"}
    yield operator, "/operate/tenants/", {"slug": "new", "name": "New", "initials": "n"}
    yield operator, tenant, {"do": "add", "username": "dag", "role": "member"}
    yield operator, tenant, {"do": "add", "username": "nobody-here", "role": "member"}
    yield operator, "/operate/people/", {"username": "nina", "first_name": "Nina"}
    yield operator, "/operate/pools/pool-1/settings/", {"do": "pause"}
    yield operator, "/operate/pools/pool-1/settings/", {"do": "resume"}
    yield operator, "/operate/pools/pool-1/what-if/", {"policy": "fifo", "hours": "6"}
    yield operator, "/operate/pools/pool-1/what-if/", {"policy": "fifo", "hours": "7"}
    of_type = {"gpu_type": "v100", "gpus": "1", "floor_price": "0.25"}
    settings = {"act": "set", "gpu_type": "v100", "mode": "LEND", "by_offer": "offers"}
    yield manager, sharing, settings
    yield manager, sharing, {"act": "offer", **of_type}
    yield manager, sharing, {"act": "offer", **of_type, "gpus": "99"}
    yield manager, sharing, {"act": "limit", "max_price": "0.75"}
    for offer in IdleOffer.objects.all():
        yield manager, sharing, {"act": "revoke", "offer": str(offer.uid)}
    yield manager, "/t/north/members/", {"do": "invite", "role": "viewer", "note": "guest"}
    yield manager, "/t/north/jobs/filters/", {"name": "mine", "query": "state=failed"}
    # Refused, and recorded as an attempt.
    yield owner, "/t/north/members/", {"do": "add", "username": "dag", "role": "manager"}
    yield owner, tenant, {"do": "add", "username": "dag", "role": "manager"}


def test_forms_store_no_german_text(settings: LazySettings) -> None:
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    place = town()
    place.submit(2)
    place.submit(4)
    place.play(2)
    manager = visitor("nia", place.tenant, Membership.Role.MANAGER)
    before = AuditRecord.objects.count()
    languages, statuses = set(), []
    for client, path, body in posts(place, manager):
        answer = client.post(path, body, headers={"Accept-Language": "de"})
        languages.add(answer.headers.get("Content-Language"))
        statuses.append((answer.status_code, path))
    place.play(2)
    assert languages == {"de"}
    assert not [one for one in statuses if one[0] >= 500]
    assert {one[0] for one in statuses} == {200, 302, 403, 404, 422}
    assert AuditRecord.objects.count() >= before + 8
    kept = stored()
    assert not [text for text in german() if text in kept]
    assert "fan" in kept
