"""Test that a sender continues if what it sends is deleted meanwhile, or cannot be recorded.

With real commits, because foreign keys are checked at the end of a transaction.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DatabaseError

from scheduling.models import Delivery, Message, Subscription
from tenants.faults import arm_faults
from tests.factories import cluster
from tests.integration.injected import once
from tests.integration.outbox_stage import Post, add_message, person, subscribe

pytestmark = pytest.mark.usefixtures("receivers")


@pytest.fixture
def receivers(committed_db: str) -> tuple[Subscription, Subscription]:  # noqa: ARG001 - the fixture is what is wanted of it
    tenant = cluster({"a": 4}).tenants["a"]
    first, second = (subscribe(person(name, tenant), tenant) for name in ("ada", "bob"))
    for row in (first, first, second):
        add_message(row)
    return first, second


def attempts() -> dict[int, int]:
    """Return the number of recorded attempts by subscription."""
    rows = list(Delivery.objects.values_list("subscription", flat=True))
    return {row: rows.count(row) for row in rows}


def test_skips_a_subscription_that_is_deleted(
    receivers: tuple[Subscription, Subscription],
) -> None:
    deleted, other = receivers
    pk = deleted.pk

    def delete() -> None:
        Subscription.objects.filter(pk=pk).delete()

    hook, reached = once("outbox.after_send", delete)
    with arm_faults(hook):
        Post().run()
    assert reached
    assert attempts() == {other.pk: 1}
    assert Message.objects.get().state == "sent"


def test_skips_messages_that_are_deleted() -> None:
    post = Post()

    def delete() -> None:
        Message.objects.filter(uid__in=[one.messages[0].uid for one in post.sent]).delete()

    hook, reached = once("outbox.after_send", delete)
    with arm_faults(hook):
        post.run()
    assert reached
    assert Delivery.objects.count() == Message.objects.count() < 3
    assert set(Message.objects.values_list("state", flat=True)) <= {"sent"}
    assert not Subscription.objects.exclude(failures=0).exists()


def test_repeats_later_what_it_cannot_record() -> None:
    post = Post()

    def refuse() -> None:
        raise DatabaseError

    hook, reached = once("outbox.before_record", refuse)
    with arm_faults(hook):
        post.run()
    assert reached
    assert Delivery.objects.filter(is_ok=True).exists()
    assert Message.objects.filter(state="due").exists()
    post.run(after=timedelta(minutes=2))
    assert set(Message.objects.values_list("state", flat=True)) == {"sent"}
