"""Sends due messages. Only this module changes the state of messages, and writes deliveries.

A sender claims a receiver, not a message: so a receiver gets one message at a time, and a receiver
that fails waits as a whole. The network is used in threads, outside of any transaction; this
thread reads and writes the database. After a crash, a claim expires, and the message that was being
sent is sent again with the same id.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import Coalesce, Now, RowNumber

from scheduling.models import Delivery, Message, MessageKind, Subscription
from scheduling.outbox.bodies import Outgoing
from scheduling.outbox.deliver import Parcel, deliver
from scheduling.outbox.post import Receipt
from tenants.faults import fault_point
from tenants.models import Membership
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

THREADS = 8
# While all threads wait for receivers, new messages of others are looked up this often.
LOOK_S = 0.5
# A person's receivers that are claimed at once, so that no person occupies all threads.
PER_PERSON = 2
# A receiver's messages per claim, so that receivers take turns.
BATCH, DIGEST_MOST = 20, 1000
CLAIM = timedelta(seconds=90)
# Pauses after the first, second, ... failure in a row; the last one repeats.
PAUSES_S = (10, 60, 300, 1800, 7200, 21_600)
JITTER = 0.2
# A message that fails for so long is given up; a receiver, switched off.
MESSAGE_LIFE = timedelta(hours=24)
RECEIVER_LIFE = timedelta(days=3)
GONE = 410
# Sent messages and deliveries are kept this long.
KEEP = timedelta(days=30)

_LONGEST_WAIT = (F("claimed_until").asc(nulls_first=True), "id")
Deliver = Callable[[Parcel, datetime], tuple[Receipt, int]]


@dataclass
class _Turn:
    """A claimed receiver and its messages that are still to be sent."""

    subscription: Subscription
    parts: deque[Sequence[Message]]
    sending: Sequence[Message] = field(default_factory=list)


@dataclass
class Sender:
    """Sends due messages until none is due, or `stops` is true. `now` reads the wall clock."""

    now: Callable[[], datetime]
    deliver: Deliver = deliver
    threads: int = THREADS
    jitter: Callable[[], float] = random.random
    stops: Callable[[], bool] = lambda: False

    def run(self) -> int:
        """Send what is due; return the number of attempts. A slow receiver occupies one thread."""
        attempts, looks = 0, True
        running: dict[Future[tuple[Receipt, int]], _Turn] = {}
        with ThreadPoolExecutor(self.threads, "outbox") as pool:
            while True:
                if looks and not self.stops():
                    for turn in claim(self.now(), most=self.threads - len(running)):
                        self._submit(pool, running, turn)
                if not running:
                    return attempts
                done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                looks = not done
                for future in done:
                    turn = running.pop(future)
                    fault_point("outbox.after_send")
                    reply, took_ms = _result(future)
                    attempts += 1
                    if self._record(turn, reply, took_ms) and not self.stops():
                        self._submit(pool, running, turn)
                    else:
                        looks = True

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        running: dict[Future[tuple[Receipt, int]], _Turn],
        turn: _Turn,
    ) -> None:
        turn.sending = turn.parts.popleft()
        row = turn.subscription
        messages = [Outgoing(one.uid, one.kind, one.at, one.data) for one in turn.sending]
        parcel = Parcel(row.uid, row.channel, row.address, messages, row.person.language)
        running[pool.submit(self.deliver, parcel, self.now())] = turn

    def _record(self, turn: _Turn, reply: Receipt, took_ms: int) -> bool:
        """Record an attempt; return whether to continue with the receiver's next message.

        An attempt that cannot be recorded is repeated when the claim expires.
        """
        try:
            return self._write(turn, reply, took_ms)
        except DatabaseError:
            log.exception("outbox.not_recorded", subscription=str(turn.subscription.uid))
            return False

    def _write(self, turn: _Turn, reply: Receipt, took_ms: int) -> bool:
        """Write what was sent, except for messages that were deleted meanwhile."""
        now, claim_ = self.now(), turn.subscription.claim
        with site_scope():
            row = Subscription.objects.select_for_update().filter(pk=turn.subscription.pk).first()
            if row is None:
                return False
            messages = Message.objects.filter(pk__in=[one.pk for one in turn.sending])
            left = list(messages.select_for_update().order_by("id").values_list("id", flat=True))
            Delivery.objects.bulk_create(
                Delivery(
                    message_id=one, subscription_id=row.pk, tenant_id=row.tenant_id, at=now,
                    is_ok=reply.is_ok, status=reply.status, error=reply.error[:200],
                    response=reply.start[:200], duration_ms=took_ms,
                )
                for one in left
            )  # fmt: skip # a row
            if reply.is_ok:
                messages.update(state=Message.State.SENT, sent_at=now, attempts=F("attempts") + 1)
            else:
                self._put_off(messages, turn, now)
            is_on = row.claim == claim_ and row.state == turn.subscription.state
            goes_on = is_on and reply.is_ok and bool(turn.parts)
            if row.claim == claim_:
                self._note(row, reply, now, goes_on=goes_on)
            fault_point("outbox.before_record")
        return goes_on

    def _put_off(self, messages: QuerySet[Message], turn: _Turn, now: datetime) -> None:
        """Plan the next attempt of messages, or give old ones up."""
        attempts = turn.sending[0].attempts + 1
        due = messages.filter(state=Message.State.DUE)
        due.filter(created_at__lte=now - MESSAGE_LIFE).update(
            state=Message.State.FAILED, attempts=F("attempts") + 1
        )
        due.update(due_at=now + self._pause(attempts), attempts=F("attempts") + 1)

    def _note(self, row: Subscription, reply: Receipt, now: datetime, *, goes_on: bool) -> None:
        """Update the receiver's failures, and release it unless its next message follows."""
        if reply.is_ok:
            row.failures, row.failing_since, row.retry_at = 0, None, None
        else:
            row.failures += 1
            row.failing_since = row.failing_since or now
            row.retry_at = now + self._pause(row.failures)
            if reply.status == GONE or row.failing_since <= now - RECEIVER_LIFE:
                switch_off([row.pk], f"Failing since {row.failing_since:%Y-%m-%d}. {reply.error}")
        row.claimed_until = now + CLAIM if goes_on else now
        row.save(update_fields=["failures", "failing_since", "retry_at", "claimed_until"])

    def _pause(self, failures: int) -> timedelta:
        pause_s = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
        return timedelta(seconds=pause_s * (1 + JITTER * (2 * self.jitter() - 1)))


def claim(now: datetime, *, most: int) -> list[_Turn]:
    """Claim receivers with due messages, the one that waits longest for its turn first.

    Receivers whose person left the tenant, or may not sign in, are switched off instead.
    """
    if most <= 0:
        return []
    with site_scope():
        rows = list(
            _claimable(now)
            .filter(pk__in=_turns(now))
            .select_related("person")
            .select_for_update(skip_locked=True, no_key=True, of=("self",))
            .order_by(*_LONGEST_WAIT)[:most]
        )
        members = _members(rows)
        left = [row.pk for row in rows if (row.person_id, row.tenant_id) not in members]
        if left:
            switch_off(left, "You are no longer a member of the tenant.", Message.State.DROPPED)
        claimed = [row for row in rows if row.pk not in left]
        for row in claimed:
            row.claim, row.claimed_until = row.claim + 1, now + CLAIM
        Subscription.objects.bulk_update(claimed, ["claim", "claimed_until"])
        turns = [_Turn(row, _parts(row, now)) for row in claimed]
    fault_point("outbox.after_claim")
    return turns


def is_message_due(now: datetime) -> bool:
    """Return whether a receiver can be claimed."""
    with site_scope():
        return _claimable(now).exists()


def drop_old_messages() -> int:
    """Delete messages that are older than `KEEP`, with their deliveries; return how many."""
    with site_scope():
        old = Message.objects.filter(created_at__lt=Now() - KEEP)
        deleted, _ = old.exclude(state=Message.State.DUE).delete()
    return deleted


def switch_off(
    subscriptions: Sequence[int], note: str, after: Message.State = Message.State.FAILED
) -> None:
    """Send nothing more of some subscriptions; `note` is shown to their person."""
    rows = Subscription.objects.filter(pk__in=subscriptions)
    rows.update(state=Subscription.State.FAILED, note=note[:200])
    Message.objects.filter(subscription__in=subscriptions, state=Message.State.DUE).update(
        state=after
    )


def _claimable(now: datetime) -> QuerySet[Subscription]:
    states = Subscription.State
    due = Message.objects.filter(
        subscription=OuterRef("pk"), state=Message.State.DUE, due_at__lte=now
    )
    to_confirm = due.filter(kind=MessageKind.CONFIRM)
    return Subscription.objects.filter(
        Q(Exists(due), state=states.ACTIVE) | Q(Exists(to_confirm), state=states.UNCONFIRMED),
        Q(retry_at=None) | Q(retry_at__lte=now),
        Q(claimed_until=None) | Q(claimed_until__lte=now),
    )


def _turns(now: datetime) -> QuerySet[Subscription, int]:
    """Return the claimable receivers of each person up to `PER_PERSON`, with the claimed ones."""
    claimed = Subscription.objects.filter(person=OuterRef("person"), claimed_until__gt=now)
    place = Window(RowNumber(), partition_by="person", order_by=_LONGEST_WAIT)
    held = claimed.order_by().values("person").annotate(held=Count("pk")).values("held")
    rows = _claimable(now).annotate(place=place, held=Coalesce(Subquery(held), 0))
    return rows.filter(place__lte=PER_PERSON - F("held")).values_list("pk", flat=True)


def _members(rows: Sequence[Subscription]) -> set[tuple[int, int]]:
    """Return the pairs of person and tenant of which the person is an active member."""
    return set(
        Membership.objects.filter(
            user__in={row.person_id for row in rows},
            tenant__in={row.tenant_id for row in rows},
            user__is_active=True,
        ).values_list("user_id", "tenant_id")
    )


def _parts(row: Subscription, now: datetime) -> deque[Sequence[Message]]:
    """Return the due messages in the parts in which they are sent: a digest is one part."""
    messages = Message.objects.filter(
        subscription=row, state=Message.State.DUE, due_at__lte=now
    ).order_by("attempts", "id")
    if row.state == Subscription.State.UNCONFIRMED:
        messages = messages.filter(kind=MessageKind.CONFIRM)
    if row.digest_hour is not None:
        return deque([list(messages[:DIGEST_MOST])])
    return deque([one] for one in messages[:BATCH])


def _result(future: Future[tuple[Receipt, int]]) -> tuple[Receipt, int]:
    """Return the result of an attempt; an unexpected error counts as a failure."""
    try:
        return future.result()
    except Exception as error:
        log.exception("outbox.raised")
        return Receipt(error=f"The message could not be sent: {type(error).__name__}."), 0
