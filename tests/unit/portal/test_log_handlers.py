"""Test a full disk: log lines are lost, the terminal says so once, and the process continues."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import logging.config
import sys
import time
from pathlib import Path

import pytest
from django.conf import settings

from portal.embedded import log_handlers
from portal.embedded.children import Child, Spec
from portal.embedded.watchdog import Watchdog


class FullDisk(io.StringIO):
    """A stream on a disk without free space."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def _first_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_handlers, "_notice", log_handlers._Notice())


def configured() -> logging.Handler:
    """Return the log handler of web processes, workers and commands."""
    (name,) = settings.LOGGING["handlers"]
    configurator = logging.config.DictConfigurator(settings.LOGGING)
    configurator.config["formatters"] = {
        key: configurator.configure_formatter(dict(row))
        for key, row in settings.LOGGING["formatters"].items()
    }
    handler: logging.Handler = configurator.configure_handler(
        dict(settings.LOGGING["handlers"][name])
    )
    return handler


def log_lines(handler: logging.Handler, count: int) -> None:
    log = logging.Logger("full")  # noqa: LOG001 - it ends with the test
    log.addHandler(handler)
    for number in range(count):
        log.info("line %s", number)


class TestFullDisk:
    def test_portal_reports_lost_lines_once(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda: now)
        handler = configured()
        assert isinstance(handler, logging.StreamHandler)
        handler.stream = FullDisk()
        log_lines(handler, 500)
        (said,) = capsys.readouterr().err.splitlines()
        assert "No space left on device" in said
        now += log_handlers.NOTICE_EVERY_S
        log_lines(handler, 500)
        (said,) = capsys.readouterr().err.splitlines()
        assert "lines lost so far: 501" in said

    def test_failure_to_report_is_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handler = configured()
        assert isinstance(handler, logging.StreamHandler)
        handler.stream = FullDisk()
        monkeypatch.setattr(sys, "stderr", FullDisk())
        log_lines(handler, 2)

    def test_formatting_errors_are_still_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        log = logging.Logger("full")  # noqa: LOG001 - it ends with the test
        log.addHandler(log_handlers.StreamHandler(io.StringIO()))
        log.info("%d", "no number")
        assert "Logging error" in capsys.readouterr().err

    def test_up_command_keeps_child_running_until_end(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(log_handlers.FileHandler, "_open", lambda _: FullDisk())
        lines = "for number in range(200): print(number)"

        async def run() -> int:
            with Watchdog([]) as watchdog:
                spec = Spec("chatty", [sys.executable, "-S", "-c", lines])
                child = Child(spec, tmp_path, watchdog, print, verbose=False)
                status = await child.run_once()
                await child.stop()
                return status

        assert asyncio.run(run()) == 0
        (said,) = capsys.readouterr().err.splitlines()
        assert "chatty.log cannot be written" in said
