"""Test that no message is lost, repeated more than once, or delayed by another receiver."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from scheduling.models import Delivery, Message, Subscription
from scheduling.outbox.deliver import Parcel
from scheduling.outbox.post import Receipt
from scheduling.outbox.send import PAUSES_S, Sender, claim, drop_old_messages
from tenants.faults import arm_faults
from tenants.models import Membership
from tests.factories import cluster
from tests.integration.injected import InjectedError, fail, once
from tests.integration.outbox_stage import WALL, Post, add_message, person, subscribe

pytestmark = pytest.mark.django_db
STATES = Message.State


@pytest.fixture
def receiver() -> Subscription:
    tenant = cluster({"a": 4}).tenants["a"]
    return subscribe(person("ada", tenant), tenant)


def states(row: Subscription) -> list[str]:
    return list(row.messages.order_by("id").values_list("state", flat=True))


class TestSending:
    def test_sends_each_message_once_and_logs_it(self, receiver: Subscription) -> None:
        rows = [add_message(receiver) for _ in range(3)]
        post = Post()
        assert post.run() == 3
        assert post.run(after=timedelta(hours=1)) == 0
        assert [parcel.messages[0].uid for parcel in post.sent] == [row.uid for row in rows]
        assert states(receiver) == ["sent"] * 3
        logged = Delivery.objects.order_by("id").values_list("is_ok", "status", "duration_ms")
        assert set(logged) == {(True, 204, 5)}

    def test_continues_after_a_batch(self, receiver: Subscription) -> None:
        for _ in range(45):
            add_message(receiver)
        assert Post().run() == 45

    def test_waits_longer_after_each_failure_then_sends(self, receiver: Subscription) -> None:
        add_message(receiver)
        post = Post(replies={receiver.address: Receipt(503, "busy", "The receiver answered 503.")})
        assert post.run() == 1
        for pause_s in PAUSES_S[:-1]:
            assert post.run(after=timedelta(seconds=pause_s - 1)) == 0
            assert post.run(after=timedelta(seconds=1)) == 1
        receiver.refresh_from_db()
        assert (receiver.failures, receiver.failing_since) == (len(PAUSES_S), WALL)
        post.replies.clear()
        assert post.run(after=timedelta(seconds=PAUSES_S[-1])) == 1
        receiver.refresh_from_db()
        assert (receiver.failures, receiver.failing_since, receiver.retry_at) == (0, None, None)
        assert states(receiver) == ["sent"]
        assert len({parcel.messages[0].uid for parcel in post.sent}) == 1

    def test_gives_up_a_message_after_a_day_and_a_receiver_after_three(
        self, receiver: Subscription
    ) -> None:
        add_message(receiver)
        post = Post(replies={receiver.address: Receipt(error="The connection failed.")})
        post.run()
        post.run(after=timedelta(hours=25))
        assert states(receiver) == ["failed"]
        add_message(receiver, created_at=post.at, due_at=post.at)
        add_message(receiver, created_at=post.at, due_at=post.at + timedelta(days=9))
        post.run(after=timedelta(days=2))
        receiver.refresh_from_db()
        assert receiver.state == Subscription.State.FAILED
        assert receiver.note == "Failing since 2030-06-01. The connection failed."
        assert states(receiver) == ["failed"] * 3

    def test_switches_a_receiver_off_that_is_gone(self, receiver: Subscription) -> None:
        add_message(receiver)
        add_message(receiver)
        Post(replies={receiver.address: Receipt(410, "", "The receiver answered 410.")}).run()
        receiver.refresh_from_db()
        assert receiver.state == Subscription.State.FAILED
        assert states(receiver) == ["failed"] * 2
        assert Delivery.objects.count() == 1

    def test_tries_a_failing_receiver_once_however_many_messages_wait(
        self, receiver: Subscription
    ) -> None:
        for _ in range(30):
            add_message(receiver)
        post = Post(replies={receiver.address: Receipt(500, "", "The receiver answered 500.")})
        assert post.run() == 1
        assert post.run(after=timedelta(seconds=PAUSES_S[0])) == 1
        # Another message is tried first, so one that the receiver refuses blocks no other.
        assert post.sent[0].messages[0].uid != post.sent[1].messages[0].uid

    def test_delays_no_other_receiver_while_one_is_slow(self, receiver: Subscription) -> None:
        others = threading.Event()
        slow = receiver.address
        tenant = receiver.tenant
        post = Post()

        def before(parcel: Parcel) -> None:
            if parcel.address == slow:
                assert others.wait(60)
            elif len(post.sent) == 39:
                others.set()

        post.before = before
        add_message(receiver)
        for name in ("bob", "cem"):
            row = subscribe(person(name, tenant), tenant)
            for _ in range(20):
                add_message(row)
        assert post.run() == 41
        assert post.sent[-1].address == slow

    def test_sends_to_two_receivers_of_a_person_at_once(self, receiver: Subscription) -> None:
        ada, tenant = receiver.person, receiver.tenant
        bob = subscribe(person("bob", tenant), tenant)
        mine = [subscribe(ada, tenant, address=f"https://{index}.example.org/") for index in "abc"]
        for row in (receiver, *mine, bob):
            add_message(row)
        first = claim(WALL, most=8)
        assert {turn.subscription.pk for turn in first} == {receiver.pk, mine[0].pk, bob.pk}
        assert claim(WALL, most=8) == []
        Subscription.objects.filter(pk=receiver.pk).update(claimed_until=WALL)
        Message.objects.filter(subscription=receiver).update(state=STATES.SENT)
        (next_one,) = claim(WALL, most=8)
        assert next_one.subscription == mine[1]
        post = Post(WALL + timedelta(minutes=2))
        assert post.run() == 4

    def test_sends_nothing_to_a_person_who_left(self, receiver: Subscription) -> None:
        add_message(receiver)
        Membership.objects.all().delete()
        assert Post().run() == 0
        receiver.refresh_from_db()
        assert receiver.state == Subscription.State.FAILED
        assert states(receiver) == ["dropped"]

    def test_sends_nothing_more_after_a_person_paused_it(self, receiver: Subscription) -> None:
        add_message(receiver)
        add_message(receiver)

        def pause() -> None:
            Subscription.objects.update(state=Subscription.State.PAUSED)

        hook, _ = once("outbox.after_send", pause)
        with arm_faults(hook):
            assert Post().run() == 1
        assert states(receiver) == ["sent", "due"]

    def test_sends_only_its_question_to_an_unconfirmed_address(
        self, receiver: Subscription
    ) -> None:
        Subscription.objects.update(state=Subscription.State.UNCONFIRMED, channel="mail")
        add_message(receiver)
        add_message(receiver, kind="confirm")
        assert Post().run() == 1
        assert states(receiver) == ["due", "sent"]

    def test_sends_a_digest_as_one_mail(self, receiver: Subscription) -> None:
        Subscription.objects.update(channel="mail", digest_hour=9, digest_at=WALL)
        for _ in range(3):
            add_message(receiver)
        add_message(receiver, due_at=WALL + timedelta(days=1))
        post = Post()
        assert post.run() == 1
        assert len(post.sent[0].messages) == 3
        assert states(receiver) == ["sent"] * 3 + ["due"]
        assert Delivery.objects.count() == 3

    def test_treats_an_unexpected_error_as_a_failed_attempt(self, receiver: Subscription) -> None:
        add_message(receiver)

        def broken(_: Parcel) -> None:
            raise KeyError

        assert Post(before=broken).run() == 1
        assert Delivery.objects.get().error == "The message could not be sent: KeyError."

    def test_deletes_old_messages_that_are_not_due(self, receiver: Subscription) -> None:
        add_message(receiver, created_at=WALL.replace(year=2020), state=STATES.SENT)
        add_message(receiver, created_at=WALL.replace(year=2020))
        add_message(receiver, created_at=WALL.replace(year=2090), state=STATES.SENT)
        assert drop_old_messages() == 1
        assert states(receiver) == ["due", "sent"]


class TestCrashes:
    @pytest.mark.parametrize(
        ("point", "sent"),
        [("outbox.after_claim", 1), ("outbox.after_send", 2), ("outbox.before_record", 2)],
    )
    def test_lose_no_message_and_repeat_one_at_most_with_its_id(
        self, receiver: Subscription, point: str, sent: int
    ) -> None:
        add_message(receiver)
        add_message(receiver)
        post = Post()
        hook, reached = once(point, fail)
        with arm_faults(hook), pytest.raises(InjectedError):
            post.run()
        assert reached
        assert post.run() == 0  # the claim of the crashed sender
        post.run(after=timedelta(minutes=2))
        assert states(receiver) == ["sent"] * 2
        ids = [parcel.messages[0].uid for parcel in post.sent]
        assert (len(ids), len(set(ids))) == (1 + sent, 2)

    def test_leave_the_receiver_to_the_next_sender(self, receiver: Subscription) -> None:
        add_message(receiver)
        post, late = Post(), Post()

        def takes_too_long(_: Parcel) -> None:
            post.at += timedelta(minutes=5)

        # While it sends, another sender claims the receiver.
        def after_send(name: str) -> None:
            if name == "outbox.after_send" and not late.sent:
                late.at = post.at
                Sender(late.now, late).run()

        post.before = takes_too_long
        with arm_faults(after_send):
            post.run()
        assert (len(post.sent), len(late.sent)) == (1, 1)
        assert states(receiver) == ["sent"]
