"""Celery tasks of billing. They are wake-ups: a lost or repeated one changes only the timing."""

from typing import Any

import structlog
from celery import shared_task
from django.conf import settings

from billing.checks.logs import transfer_faults
from billing.metering import count_forecasts, log_transfers, meter_pool, settle_pool
from billing.metering.ledger_log import BATCH as LOG_BATCH
from billing.models import Book
from billing.selectors.citations import cited_from
from scheduling.engine.retention import drop_files as drop_files_of
from scheduling.models import Pool
from tenants.scopes import site_scope
from tenants.transparency import ledger_log, size
from tenants.transparency.scrub import scrub_log

log = structlog.get_logger(__name__)

BATCH = 5000
# A backlog must not delay the queue's other tasks; the next wake-up continues.
BATCHES = 4


@shared_task(name="billing.meter", ignore_result=True, acks_late=True)
def meter(*_: Any, **__: Any) -> int:
    """Meter and settle all pools, count forecast hits; return the number of usage lines written."""
    lines = 0
    for pool in Pool.objects.order_by("id"):
        try:
            for _batch in range(BATCHES):
                metered = meter_pool(pool.pk, limit=BATCH)
                lines += metered.lines
                if metered.events < BATCH:
                    break
            settle_pool(pool.pk)
            count_forecasts(pool.pk)
        except Exception:
            log.exception("meter.failed", pool=pool.name)
    return lines


@shared_task(name="billing.log_transfers", ignore_result=True, acks_late=True)
def log_new_transfers(*_: Any, look_at_all: bool = False, **__: Any) -> int:
    """Write transfers that are missing in the logs of their books; return how many.

    With `look_at_all` (once an hour), also write old transfers that were missed, and then compare a
    part of the logs with the transfers again.
    """
    logged = 0
    for book in Book.objects.order_by("id"):
        try:
            for _batch in range(BATCHES):
                new = log_transfers(book, look_at_all=look_at_all)
                logged += new
                if new < LOG_BATCH:
                    break
            if look_at_all and size(ledger_log(book.slug)):
                scrub_log(ledger_log(book.slug), "transfers", transfer_faults)
        except Exception:
            log.exception("log_transfers.failed", book=book.slug)
    return logged


@shared_task(name="billing.drop_files", ignore_result=True, acks_late=True)
def drop_files(*_: Any, **__: Any) -> int:
    """Drop files of rounds that are old enough and that no open period cites; return how many."""
    dropped = 0
    for pool in Pool.objects.order_by("id"):
        try:
            with site_scope():
                cited = cited_from(pool)
            dropped += drop_files_of(pool.pk, cited_from=cited, keep_days=settings.ROUNDS_KEEP_DAYS)
        except Exception:
            log.exception("drop_files.failed", pool=pool.name)
    return dropped
