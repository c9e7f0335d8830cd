"""Test that templates are laid out for people, and rendered without this layout."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.template import engines
from django.template.loader import render_to_string
from django.utils.html import strip_tags

from portal.charts.notes import Note

from .test_components import shown


class TestPage:
    def test_contains_no_indentation(self) -> None:
        html = render_to_string("errors/404.html", {})
        assert "    " not in html
        assert html.startswith("<!DOCTYPE html>")

    def test_keeps_words_separated(self) -> None:
        source = (settings.BASE_DIR / "templates" / "errors" / "404.html").read_text(
            encoding="utf-8"
        )
        assert "\n    " in source  # the template's source has line breaks and indents
        words = strip_tags(render_to_string("errors/404.html", {})).split()
        assert "mistyped," in words


class TestTemplateVariable:
    def test_unknown_name_fails_in_tests(self) -> None:
        """A page would show an unknown name as empty text, so tests/plugin.py makes it an error."""
        template = engines["django"].from_string("{{ row.label }}{{ row.text|default:0 }}")
        assert template.render({"row": {"label": "", "text": None}}) == "0"
        with pytest.raises(AssertionError, match=r"row\.text"):
            template.render({"row": {"label": ""}})


class TestComponent:
    def test_adds_no_trailing_whitespace(self) -> None:
        html = shown("{% note '61' about %}.", about=Note("Use"))
        assert html.endswith(">.")

    def test_keeps_text_of_job_unchanged(self) -> None:
        text = "  a\n\n    b\n"
        context = {"spec_yaml": text, "spec_cli": "evenshare submit", "spec_curl": "curl"}
        html = render_to_string("jobs/_job_spec.html", context)
        assert text in html
