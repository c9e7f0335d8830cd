"""Test which executors are available, depending on what is installed."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from scheduling.engine.executors.base import ExecutorError, executor_for


class TestExecutor:
    def test_unknown_name_lists_known_executors(self) -> None:
        with pytest.raises(
            ExecutorError, match="'ray' is unknown; known executors are virtual, local"
        ):
            executor_for("ray")

    def test_local_is_refused_in_production(self, settings: Settings) -> None:
        settings.PRODUCTION = True
        with pytest.raises(ExecutorError, match="not in production"):
            executor_for("local")
