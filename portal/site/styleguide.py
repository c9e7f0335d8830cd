"""The living style guide: every component with samples, to check by eye; no database."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.charts.samples import sample_context


def styleguide(request: HttpRequest) -> HttpResponse:
    """All components on one page, from invented samples; no database."""
    return render(request, "styleguide.html", sample_context(many=int("many" in request.GET)))
