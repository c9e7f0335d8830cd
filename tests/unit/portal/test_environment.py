"""Test settings from the environment: they are typed, and errors name the variable."""

import pytest

from portal.site import environment
from portal.site.celery import broker_url
from portal.site.environment import SettingError


class TestSetting:
    def test_missing_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SECRET_KEY", raising=False)
        with pytest.raises(SettingError, match="SECRET_KEY must be set"):
            environment.text("SECRET_KEY")

    @pytest.mark.parametrize("value", ["many", "-1", "1.5", "٣x"])
    def test_invalid_number_is_named(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("DATABASE_POOL_SIZE", value)
        with pytest.raises(SettingError, match="DATABASE_POOL_SIZE"):
            environment.whole("DATABASE_POOL_SIZE", 0)

    @pytest.mark.parametrize("value", ["{", "[1]", "bucket", "null", '"x"'])
    def test_invalid_json_is_named_without_its_value(
        self, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        monkeypatch.setenv("ROUNDS_STORAGE_OPTIONS", value)
        with pytest.raises(SettingError) as caught:
            environment.fields("ROUNDS_STORAGE_OPTIONS")
        assert str(caught.value) == (
            'ROUNDS_STORAGE_OPTIONS must be a JSON object, such as {"bucket_name": "rounds"}'
        )

    def test_reads_json_object(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ROUNDS_STORAGE_OPTIONS", '{"a": 1}')
        assert environment.fields("ROUNDS_STORAGE_OPTIONS") == {"a": 1}
        monkeypatch.setenv("ROUNDS_STORAGE_OPTIONS", "")
        assert environment.fields("ROUNDS_STORAGE_OPTIONS") == {}

    def test_invalid_flag_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEBUG", "perhaps")
        with pytest.raises(SettingError, match="DEBUG"):
            environment.flag("DEBUG")

    @pytest.mark.parametrize(("value", "meant"), [("1", True), ("true", True), ("0", False)])
    def test_reads_flag(self, monkeypatch: pytest.MonkeyPatch, value: str, *, meant: bool) -> None:
        monkeypatch.setenv("DEBUG", value)
        assert environment.flag("DEBUG") is meant


class TestDatabaseUrl:
    def test_with_network_host(self) -> None:
        found = environment.database("DATABASE_URL", "postgres://me:p%40ss@db.example:5433/portal")
        wanted = ("me", "p@ss", "db.example", "5433", "portal")
        keys = ("USER", "PASSWORD", "HOST", "PORT", "NAME")
        assert tuple(found[key] for key in keys) == wanted

    def test_with_unix_socket(self) -> None:
        found = environment.database("DATABASE_URL", "postgres://me@/portal?host=%2Frun%2Fpg")
        assert (found["HOST"], found["NAME"], found["OPTIONS"]) == ("/run/pg", "portal", {})

    def test_keeps_driver_options(self) -> None:
        found = environment.database("DATABASE_URL", "postgres://me@db/portal?sslmode=require")
        assert found["OPTIONS"] == {"sslmode": "require"}

    @pytest.mark.parametrize("address", ["mysql://me@db/portal", "postgres://me@db/", "portal"])
    def test_rejects_other_schemes(self, address: str) -> None:
        with pytest.raises(SettingError, match="DATABASE_URL"):
            environment.database("DATABASE_URL", address)


class TestBrokerUrl:
    @pytest.mark.parametrize(
        ("redis", "celery"),
        [
            ("redis://h:6379/1", "redis://h:6379/1"),
            ("unix:///tmp/a.sock?db=2", "redis+socket:///tmp/a.sock?virtual_host=2"),
            ("unix:///tmp/a.sock", "redis+socket:///tmp/a.sock?virtual_host=0"),
        ],
    )
    def test_is_converted_for_celery(self, redis: str, celery: str) -> None:
        assert broker_url(redis) == celery
