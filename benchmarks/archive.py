"""Benchmark of the archive: move a day of rounds with 1,000 jobs to files, and read them."""

import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.temporary_database import temporary_database

ROUNDS, JOBS, NODES, GPUS, TURNS = 1000, 1000, 125, 8, 31
COPIES = (
    ("scheduling_roundblob", ""),
    ("scheduling_roundbundle", ""),
    ("scheduling_roundstate", ""),
    ("scheduling_round", ", 'id', 10000000 + i, 'at', r.at + i * interval '10 s'"),
)


def main() -> None:
    with temporary_database(), tempfile.TemporaryDirectory() as folder:
        from django.test.utils import override_settings

        storage = "scheduling.selectors.rounds.files.RoundFolder"
        options = {"BACKEND": storage, "OPTIONS": {"location": folder}}
        from django.conf import settings

        with override_settings(STORAGES={**settings.STORAGES, "rounds": options}):
            compare(filled())


def filled() -> Any:
    """Return a pool with a sealed round, copied a thousand times."""
    from django.db import connections

    from scheduling.models import RoundSealing
    from tests.factories import cluster

    begin = datetime(2020, 5, 4, 10, tzinfo=UTC)
    quotas = {f"t{i}": NODES * GPUS // 10 for i in range(10)}
    lab = cluster(quotas, nodes=NODES, gpus=GPUS, begin=begin)
    for i in range(JOBS):
        lab.submit(f"t{i % 10}", GPUS, 10**6)
    lab.rounds(2, every_s=300)
    lab.seal()
    with connections["owner"].cursor() as cursor:
        for table, more in COPIES:
            cursor.execute(
                f"INSERT INTO {table} SELECT (jsonb_populate_record(r, jsonb_build_object("  # noqa: S608 - constants
                f"'number', 2 + i{more}))).* FROM {table} r"
                f" CROSS JOIN generate_series(1, {ROUNDS - 2}) i WHERE r.number = 2"
            )
    RoundSealing.objects.update(number=ROUNDS)
    return lab


def compare(lab: Any) -> None:
    from django.db.models import Sum

    from scheduling.engine.archive import archive_rounds
    from scheduling.models import Round, RoundArchive, RoundBlob
    from scheduling.selectors.rounds.bundles import packed_bundle
    from scheduling.selectors.rounds.stored import round_bytes

    round_ = Round.objects.get(pool=lab.pool, number=ROUNDS // 2)
    reads = (
        ("a bundle", partial(packed_bundle, lab.pool.pk, 2)),
        ("snapshot and decision, compared", partial(round_bytes, round_)),
    )
    before = [clocked(read) for _, read in reads]
    began = time.perf_counter()
    while RoundBlob.objects.filter(pool=lab.pool).exists():
        done = archive_rounds(seconds=600)
        if done.failures:
            raise SystemExit("\n".join(done.failures))
    took = time.perf_counter() - began
    files = RoundArchive.objects.filter(pool=lab.pool)
    size = files.aggregate(all=Sum("bytes"))["all"]
    print(f"{ROUNDS:,} rounds, {JOBS:,} jobs, {NODES} nodes x {GPUS}")
    print(
        f"moved in {took:.1f} s: {ROUNDS / took:,.0f} rounds/s, {size / took / 1e6:.1f} MB/s,"
        f" {size / 1e6:.1f} MB in {files.count()} files"
    )
    for (name, read), (median, longest) in zip(reads, before, strict=True):
        filed, filed_longest = clocked(read)
        print(
            f"{name:<32} database {median:5.1f} ms (longest {longest:.1f}),"
            f" file {filed:5.1f} ms (longest {filed_longest:.1f}): {filed / median:.1f}x"
        )


def clocked(read: Callable[[], Any]) -> tuple[float, float]:
    """Return the median and the longest time of a read, in ms."""
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        if not read():
            raise SystemExit("nothing was read")
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), max(times)


if __name__ == "__main__":
    main()
