"""Test that answers are small: compressed pages, one style sheet, few scripts, reduced fonts."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.conf import settings as configured
from django.test import Client
from pytest_django import Settings

from portal.site.collected import STAMP, collect
from tests.functional.api_stage import api_stage
from tests.functional.visitors import town

STATIC = Path(__file__).resolve().parents[2] / "static"
# A first load without charts may have 150 kB: one part for the frame, and the rest for the page.
FRAME_BYTES, PAGE_BYTES = 115_000, 35_000
GZIP = {"Accept-Encoding": "gzip"}


@pytest.mark.django_db
class TestPage:
    def test_is_compressed_if_accepted(self) -> None:
        place = town()
        for path in ("/pools/pool-1/", "/t/north/", "/t/north/jobs/"):
            plain = place.owner.get(path)
            packed = place.owner.get(path, headers=GZIP)
            assert "Content-Encoding" not in plain.headers
            assert packed.headers["Content-Encoding"] == "gzip"
            assert "Accept-Encoding" in packed.headers["Vary"]
            assert len(packed.content) < PAGE_BYTES
            assert len(packed.content) * 2 < len(plain.content)
            assert b"<!DOCTYPE html>" in gzip.decompress(packed.content)

    def test_csrf_token_and_compressed_length_vary(self) -> None:
        """The length of a compressed page must reveal nothing about the token."""
        place = town()
        answers = [place.owner.get("/t/north/jobs/new/", headers=GZIP) for _ in range(12)]
        pages = [gzip.decompress(answer.content).decode() for answer in answers]
        tokens = [re.findall(r'csrfmiddlewaretoken" value="(\w+)"', page) for page in pages]
        assert len({one for page in tokens for one in page}) >= len(pages)
        assert len({len(answer.content) for answer in answers}) > 1

    def test_first_load_stays_within_size_limit(self) -> None:
        page = Client().get("/?tour").content.decode()
        named = set(re.findall(r'(?:href|src)="/static/([^"]+)"', page))
        css = (STATIC / "evenshare.css").read_text()
        named |= set(re.findall(r"url\((fonts/[^)]+\.woff2)\)", css))
        assert {name for name in named if name.endswith(".woff2")} != set()
        sizes = {
            name: len(raw if name.endswith("woff2") else gzip.compress(raw))
            for name in named
            if (raw := (STATIC / name).read_bytes())
        }
        assert sum(sizes.values()) < FRAME_BYTES, sizes
        assert css.count("font-display:swap") == css.count("@font-face")


class TestApiEdit:
    def test_keeps_strong_etag_with_gzip(self, committed_db: str) -> None:
        assert committed_db
        stage = api_stage()
        stage.person("otto", site_role="operator")
        path = f"operate/pools/{stage.pool}"
        for headers in ({}, GZIP):
            seen = stage.get(path, as_="otto", **headers)
            assert seen.status_code == 200
            assert seen.headers["ETag"].startswith('"')
            assert "Content-Encoding" not in seen.headers


class TestStaticFiles:
    def test_are_collected_again_only_after_a_change(
        self, tmp_path: Path, settings: Settings
    ) -> None:
        sources, root = tmp_path / "sources", tmp_path / "root"
        sources.mkdir()
        (sources / "a.css").write_text("a{color:red}" * 50)
        settings.COLLECTED = True
        settings.STATICFILES_DIRS = [sources]
        settings.STATIC_ROOT = root
        settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
        settings.STORAGES = {
            **configured.STORAGES,
            "staticfiles": {
                "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage",
            },
        }
        assert collect()
        assert not collect()
        first = {path.name for path in root.glob("a.*.css*")}
        assert len(first) == 2, "by content hash, and compressed"
        (sources / "a.css").write_text("b{color:red}" * 60)
        assert collect()
        assert {path.name for path in root.glob("a.*.css*")}.isdisjoint(first)
        assert (root / STAMP).exists()

    def test_are_not_collected_if_disabled(self, settings: Settings) -> None:
        settings.COLLECTED = False
        assert not collect()
