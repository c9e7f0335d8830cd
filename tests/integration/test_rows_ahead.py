"""Whoever has the application's password adds a row ahead of time: refused, and the pool goes on.

History is append-only, so that a row for the next round would stand in its way for good
(docs/adr/0206-no-row-ahead-of-its-pool.md).
"""

from __future__ import annotations

from datetime import date

import pytest
from django.db import IntegrityError, connection, transaction

from scheduling.models import LeaseEvent, PoolFence, Round, RoundBundle, RoundSealing
from tenants.scopes import engine_scope
from tests.factories import Cluster
from tests.integration.rows_ahead import constraint_of
from tests.integration.test_guards import running_cluster

TODAY = date(2030, 1, 1)
COUNT = "UPDATE scheduling_poolfence SET next_round = next_round + 1"
STATE = (
    "INSERT INTO scheduling_roundstate SELECT day, pool_id, number + {}, at, policy,"
    " policy_version, service, memory, prices, entitled FROM scheduling_roundstate"
    " ORDER BY number DESC LIMIT 1"
)
BYTES = (
    "INSERT INTO scheduling_roundblob SELECT day, pool_id, number + {}, snapshot, decision"
    " FROM scheduling_roundblob ORDER BY number DESC LIMIT 1"
)
ROUND = (
    "INSERT INTO scheduling_round (pool_id, number, at, wall_at, token, policy, policy_version,"
    " scale, snapshot_sha256, decision_sha256, snapshot_us, decide_us, summary, shares, superseded,"
    " fallback, state_sha256, state_note) SELECT pool_id, number + {}, at + interval '1 day',"
    " wall_at, token, policy, policy_version, scale, snapshot_sha256, decision_sha256, snapshot_us,"
    " decide_us, summary, shares, superseded, fallback, state_sha256, state_note"
    " FROM scheduling_round ORDER BY number DESC LIMIT 1"
)
EVENT = (
    "INSERT INTO scheduling_leaseevent (pool_id, number, kind, at, posted_at, data)"
    " SELECT pool_id, number + {}, kind, at, posted_at, data"
    " FROM scheduling_leaseevent ORDER BY number DESC LIMIT 1"
)
BUNDLE = (
    "INSERT INTO scheduling_roundbundle SELECT day, pool_id, number + {}, '', ''"
    " FROM scheduling_roundblob ORDER BY number DESC LIMIT 1"
)
NEWEST = "round_row_of_the_newest"
ATTACKS = {
    "a state of the next round": ([STATE.format(1)], NEWEST),
    "bytes of the next round": ([BYTES.format(1)], NEWEST),
    "the next round": ([ROUND.format(1)], NEWEST),
    "a round far ahead": ([ROUND.format(50)], NEWEST),
    "the next event": ([EVENT.format(1)], "lease_event_not_ahead"),
    "a bundle of the next round": ([BUNDLE.format(1)], "bundle_of_the_newest_sealed"),
    "another bundle of a sealed round": (
        [BUNDLE.format(0).replace("SELECT day", "SELECT day - 400")],
        "bundle_once",
    ),
    "a count without a round": ([COUNT], "round_with_what_it_left"),
    "a count with a state alone": ([COUNT, STATE.format(1)], "round_with_what_it_left"),
    "a count with a round alone": ([COUNT, ROUND.format(1)], "round_with_what_it_left"),
    "counting back": ([COUNT.replace("+ 1", "- 1")], "fence_counts_up"),
    "counting two": ([COUNT.replace("+ 1", "+ 2")], "fence_counts_up"),
    "counting events back": (
        ["UPDATE scheduling_poolfence SET next_event = next_event - 1"],
        "fence_counts_up",
    ),
}


@pytest.fixture
def lab(committed_db: str) -> Cluster:
    assert committed_db
    made = running_cluster()
    made.seal()
    return made


def execute(lab: Cluster, *statements: str) -> None:
    """In one transaction, as the application; each changes one row."""
    with engine_scope(lab.pool.pk), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            assert cursor.rowcount == 1, statement


class TestTheApplicationsRole:
    @pytest.mark.parametrize("attack", ATTACKS)
    def test_stops_no_pool_by_a_row_ahead_of_time(self, lab: Cluster, attack: str) -> None:
        statements, name = ATTACKS[attack]
        last = Round.objects.latest("number").number
        with pytest.raises(IntegrityError) as caught:
            execute(lab, *statements)
        assert constraint_of(caught.value) == name
        lab.submit("a", 1, 100)
        lab.round(after_s=10)
        assert Round.objects.latest("number").number == last + 1
        assert Round.objects.latest("number").state_note == ""
        assert lab.seal() == 1

    def test_forges_a_whole_round_at_most_and_the_pool_goes_on(self, lab: Cluster) -> None:
        """It writes rounds, so it can write one: the next does not follow, and goes on."""
        last = Round.objects.latest("number").number
        execute(lab, COUNT, STATE.format(1), BYTES.format(1), ROUND.format(1))
        assert PoolFence.objects.get(pool=lab.pool).next_round == last + 2
        lab.at = Round.objects.latest("number").at
        lab.submit("a", 1, 100)
        lab.round(after_s=10)
        assert Round.objects.latest("number").number == last + 2
        assert lab.seal() == 2
        assert RoundSealing.objects.get(pool=lab.pool).findings


class TestAPoolWithoutACounter:
    def test_takes_no_row(self, lab: Cluster) -> None:
        with pytest.raises(IntegrityError) as caught, transaction.atomic():
            RoundBundle.objects.create(day=TODAY, pool_id=0, number=1, sha256="", data=b"")
        assert constraint_of(caught.value) == "bundle_of_the_newest_sealed"
        assert LeaseEvent.objects.filter(pool_id=0).count() == 0
