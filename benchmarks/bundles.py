"""Benchmark of bundles of rounds with 10,000 jobs over the HTTP stack: stored and rebuilt."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.round_postgres import GPUS, NODES, PENDING, RENEWALS, TENANTS, filled
from benchmarks.temporary_database import temporary_database, token_of

TURNS, GOAL_MS = 9, 300


def main() -> None:
    with temporary_database():
        compare(filled(PENDING + RENEWALS))


def compare(lab: Any) -> None:
    """Seal two rounds; in the second all jobs wait behind leases."""
    import portal.site.celery  # noqa: F401 - the application that sends messages
    from scheduling.engine.seal import seal_rounds
    from scheduling.models import RoundBundle
    from scheduling.services.wake import wake_sealing

    lab.rounds(2, every_s=300)
    first_ms = clocked(partial(seal_rounds, lab.pool.pk, limit=1))
    second_ms = clocked(partial(seal_rounds, lab.pool.pk, limit=1))
    row = RoundBundle.objects.get(pool=lab.pool, number=2)
    client = member(lab)
    path = f"/api/v1/rounds/{lab.pool.name}/2/bundle"
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    if plain.status_code != 200:
        raise SystemExit(plain.content.decode())
    print(f"{NODES:,} nodes x {GPUS}, {TENANTS} tenants, {PENDING:,} jobs waiting; milliseconds")
    print(f"bundle: {len(plain.content):,} bytes, {len(row.data):,} compressed")
    print(f"sealing a round: {first_ms:.0f} (first), {second_ms:.0f} (with the one before)")
    show("what a round waits for: a message", partial(wake_sealing, lab.pool.pk))
    made_ms = show("rebuilt from the round's bytes", partial(make_anew, lab))
    packed = {"Accept-Encoding": "gzip"}
    served_ms = show("GET, compressed", partial(client.get, path, headers=packed))
    show("GET, unpacked", partial(client.get, path, headers={"Accept-Encoding": "identity"}))
    known = packed | {"If-None-Match": plain["ETag"]}
    show("GET, already there: 304", partial(client.get, path, headers=known))
    lab.pool.visibility = "own"
    lab.pool.save(update_fields=["visibility"])
    own_ms = show("GET, own rows only", partial(client.get, path, headers=packed))
    print(f"served as stored: {made_ms / served_ms:.0f}x faster than rebuilt")
    slowest = max(served_ms, own_ms)
    print(f"goal: at most {GOAL_MS} ms; {'met' if slowest <= GOAL_MS else 'missed'}")


def make_anew(lab: Any) -> bytes:
    """Rebuild the bundle, as a portal without stored bundles would for each reader."""
    from datetime import date

    from evenshare_core.disclosure.bundle import ids_of, make_bundle
    from evenshare_core.disclosure.pseudonyms import day_of
    from scheduling.engine.pseudonyms import day_key, name_rows
    from scheduling.engine.seal import versions
    from scheduling.models import Round
    from scheduling.selectors.rounds.stored import round_values

    round_ = Round.objects.get(pool=lab.pool, number=2)
    snapshot, decision = round_values(round_)
    secret = day_key(lab.pool.pk, date.fromisoformat(day_of(snapshot.at_us)))
    return make_bundle(
        snapshot,
        decision,
        pool=lab.pool.name,
        naming=name_rows(secret, ids_of(snapshot)),
        certificate=round_.certificate,
        superseded=round_.superseded,
        versions=versions(),
    )


def member(lab: Any) -> Any:
    """Return a client with the token of a tenant's member."""
    from django.test import Client

    secret = token_of(next(iter(lab.tenants.values())))
    return Client(headers={"Authorization": f"Bearer {secret}"}, SERVER_NAME="localhost")


def show(label: str, call: Callable[[], Any]) -> float:
    """Print the median and the longest time of several turns; return the median."""
    call()
    times = sorted(clocked(call) for _ in range(TURNS))
    median = statistics.median(times)
    print(f"{label:<36}{median:>8.1f}   longest {times[-1]:.1f}")
    return median


def clocked(call: Callable[[], Any]) -> float:
    """Return the wall time of a call in milliseconds."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
