"""Test that the hourly task deletes only data that is kept for a limited time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from scheduling import tasks
from scheduling.engine import housekeeping as engine
from scheduling.models import Intent, Round
from scheduling.tasks import housekeeping
from tenants.models import LoginAttempt
from tenants.scopes import site_scope
from tests.factories import cluster


@pytest.mark.usefixtures("committed_db")
def test_deletes_old_attempts_and_keeps_history() -> None:
    lab = cluster({"a": 4})
    lab.submit("a", 1, 5)
    lab.rounds(3, every_s=10)
    old = LoginAttempt.objects.create(username="x", address="127.0.0.1")
    LoginAttempt.objects.filter(pk=old.pk).update(at=timezone.now() - timedelta(days=1))
    LoginAttempt.objects.create(username="y", address="127.0.0.1")
    before = (Round.objects.count(), Intent.objects.count())
    housekeeping()
    assert list(LoginAttempt.objects.values_list("username", flat=True)) == ["y"]
    assert (Round.objects.count(), Intent.objects.count()) == before


@pytest.mark.usefixtures("committed_db")
def test_deletes_old_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of an intent counts from its lease's end. In this test any age is old enough."""
    monkeypatch.setattr(engine, "KEEP_INTENTS", "0 seconds")
    lab = cluster({"a": 4})
    lab.submit("a", 1, 5)
    lab.rounds(3, every_s=10)
    assert Intent.objects.exists()
    housekeeping()
    assert not Intent.objects.exists()


@pytest.mark.usefixtures("committed_db")
def test_failing_step_does_not_skip_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def scrub_rounds() -> None:
        """Fail in the database, in a transaction as in the real step."""
        with site_scope(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    monkeypatch.setattr(tasks, "scrub_rounds", scrub_rounds)
    old = LoginAttempt.objects.create(username="x", address="127.0.0.1")
    LoginAttempt.objects.filter(pk=old.pk).update(at=timezone.now() - timedelta(days=1))
    with pytest.raises(ExceptionGroup, match="housekeeping") as caught:
        housekeeping()
    assert [str(error) for error in caught.value.exceptions] == ["division by zero"]
    assert not LoginAttempt.objects.exists()
