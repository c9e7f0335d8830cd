"""The Celery application: two queues, and beat's schedule.

Messages are wake-ups and contain at most ids. If all of them are lost, or each is delivered twice,
only the timing changes: PostgreSQL is the only source of truth.
"""

import logging.config
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from celery import Celery, signals
from django.conf import settings
from kombu.entity import Queue

from portal.embedded import pulse
from portal.embedded.heartbeat import LONGEST_S
from portal.site.beat import every
from portal.site.memory import keep_what_is_loaded
from portal.site.worker_heartbeat import HeartbeatThread

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
# Django's checks import every page, which takes a second and 27 MB; a worker needs no page.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

TICK_EVERY_S = 1.0
# The shortest expiry of a message. On a busy machine messages are late; with a shorter expiry, a
# task might never run.
LEAST_EXPIRES_S = 15.0
METER_EVERY_S = 5.0
LOG_TRANSFERS_EVERY_S = 30.0
HOUSEKEEPING_EVERY_S = 3600.0
ARCHIVE_EVERY_S = 300.0
SIMULATIONS_EVERY_S = FORECASTS_EVERY_S = REFITS_EVERY_S = 5.0
IDLE_EVERY_S = 10.0
DEMO_EVERY_S = 5.0
MESSAGES_EVERY_S, BUDGET_MESSAGES_EVERY_S = 2.0, 60.0
QUEUES = ("default", "rounds")


def broker_url(redis_url: str) -> str:
    """Return a Redis address in Kombu's format, which has its own scheme for Unix sockets."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"


def _every(
    seconds: float, task: str, *, queue: str = "default", kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an entry of beat's schedule. A message expires when the next one is due."""
    expires_s = max(seconds, LEAST_EXPIRES_S)
    options = {"queue": queue, "expires": expires_s}
    return {
        "task": task,
        "schedule": every(seconds),
        "kwargs": dict(kwargs or {}),
        "options": options,
    }


app = Celery("evenshare")
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL),
    # Workers, beat and web wait while the broker is away.
    broker_connection_retry=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_timeout": 10, "health_check_interval": 10},
    broker_pool_limit=4,
    task_publish_retry_policy={"max_retries": 1, "interval_start": 0.1, "interval_max": 0.2},
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    result_backend=None,
    task_queues=[Queue(name) for name in QUEUES],  # type: ignore[no-untyped-call]  # untyped kombu
    task_default_queue="default",
    task_create_missing_queues=False,
    task_routes={"scheduling.rounds": {"queue": "rounds"}},
    # A task whose worker died is delivered again, so every task is idempotent.
    task_acks_late=True,
    task_reject_on_worker_lost=False,
    # A process that hangs in a task is ended, and its worker starts another.
    task_time_limit=LONGEST_S,
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=5.0,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_send_task_events=False,
    timezone="UTC",
    enable_utc=True,
    beat_scheduler="portal.site.beat:SteadyScheduler",
    beat_schedule={
        "tick": _every(TICK_EVERY_S, "scheduling.tick"),
        "rounds": _every(TICK_EVERY_S, "scheduling.rounds", queue="rounds"),
        "meter": _every(METER_EVERY_S, "billing.meter"),
        "log-transfers": _every(LOG_TRANSFERS_EVERY_S, "billing.log_transfers"),
        "log-all-transfers": _every(
            HOUSEKEEPING_EVERY_S, "billing.log_transfers", kwargs={"look_at_all": True}
        ),
        "archive": _every(ARCHIVE_EVERY_S, "scheduling.archive"),
        "drop-files": _every(HOUSEKEEPING_EVERY_S, "billing.drop_files"),
        "housekeeping": _every(HOUSEKEEPING_EVERY_S, "scheduling.housekeeping"),
        "simulations": _every(SIMULATIONS_EVERY_S, "scheduling.simulations"),
        "idle": _every(IDLE_EVERY_S, "scheduling.idle"),
        "refits": _every(REFITS_EVERY_S, "scheduling.refits"),
        "messages": _every(MESSAGES_EVERY_S, "scheduling.messages"),
        "budget-messages": _every(BUDGET_MESSAGES_EVERY_S, "scheduling.budget_messages"),
        "forecasts": _every(FORECASTS_EVERY_S, "scheduling.forecasts"),
        **{
            f"pulse-{queue}": _every(
                pulse.PULSE_EVERY_S, "portal.pulse", queue=queue, kwargs={"queue": queue}
            )
            for queue in QUEUES
        },
    },
)
if not settings.PRODUCTION:
    app.conf.beat_schedule["demo"] = _every(DEMO_EVERY_S, "portal.demo")
app.autodiscover_tasks()


@app.task(name="portal.demo")
def demo_task(**_unknown: Any) -> None:
    """Do the due actions of the demo's people."""
    from portal.demo.philly import people_act  # noqa: PLC0415 - models are not loaded before

    people_act()


@app.task(name="portal.pulse")
def pulse_task(queue: str, **_unknown: Any) -> None:
    """Report to the supervisor, if there is one, that the queue is consumed."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if run:
        pulse.touch(Path(run), queue)


@signals.worker_init.connect
def worker_has_loaded(**_: Any) -> None:
    """Freeze modules: tasks are imported, and the worker's processes are not forked yet."""
    keep_what_is_loaded()


@signals.beat_init.connect
def beat_begins(**_: Any) -> None:
    """Use each message that beat sends as its heartbeat."""
    keep_what_is_loaded()
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if run:
        signals.after_task_publish.connect(
            lambda **_: pulse.touch(Path(run), pulse.BEAT), weak=False
        )


_heartbeat = HeartbeatThread()


@signals.worker_ready.connect
def worker_is_ready(sender: Any = None, **_: Any) -> None:
    """Start the heartbeat by which the worker is judged."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if run:
        consumed = sender.app.amqp.queues.consume_from
        _heartbeat.start(Path(run), [queue for queue in QUEUES if queue in consumed])


_tasks = pulse.TaskWatch()


@signals.task_prerun.connect
def task_begins(task: Any = None, **_: Any) -> None:
    """Give a sign of life of the queue at a task's start and end."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    queue = (getattr(task.request, "delivery_info", None) or {}).get("routing_key")
    if run and queue in QUEUES:
        _tasks.begin(Path(run), queue)


@signals.task_postrun.connect
def task_ends(**_: Any) -> None:
    _tasks.end()


@signals.setup_logging.connect
def configure_logging(**_: Any) -> None:
    """Use the logging of settings.py in the workers too, instead of Celery's own."""
    logging.config.dictConfig(settings.LOGGING)
