"""Production refuses to start on unsafe settings; the demo is not asked."""

import pytest
from pytest_django import Settings

from portal.checks import safe_for_production

SAFE = {
    "PRODUCTION": True,
    "DEBUG": False,
    "SECRET_KEY": "k" * 50,
    "ALLOWED_HOSTS": ["portal.example"],
    "REDIS_URL": "redis://:secret@broker/0",
}


def problems(settings: Settings, **changed: object) -> set[str | None]:
    for name, value in (SAFE | changed).items():
        setattr(settings, name, value)
    return {problem.id for problem in safe_for_production()}


class TestProduction:
    def test_starts_on_safe_settings(self, settings: Settings) -> None:
        assert problems(settings) == set()

    @pytest.mark.parametrize(
        ("name", "value", "problem"),
        [
            ("DEBUG", True, "portal.E001"),
            ("SECRET_KEY", "short", "portal.E002"),
            ("ALLOWED_HOSTS", [], "portal.E003"),
            ("ALLOWED_HOSTS", ["*"], "portal.E003"),
            ("APP_DB_ROLE", "postgres", "portal.E004"),
            ("REDIS_URL", "redis://broker/0", "portal.E005"),
        ],
    )
    def test_refuses(self, settings: Settings, name: str, value: object, problem: str) -> None:
        assert problems(settings, **{name: value}) == {problem}

    def test_is_the_only_mode_that_asks(self, settings: Settings) -> None:
        assert problems(settings, PRODUCTION=False, DEBUG=True) == set()
