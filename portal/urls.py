"""Addresses of all pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from portal.views import dashboard, front, jobs, live, session

urlpatterns: list[URLPattern | URLResolver] = [
    path("", front.front, name="front"),
    path("login/", session.login_page, name="login"),
    path("logout/", session.logout_page, name="logout"),
    path("demo/<slug:role>/", session.demo_login, name="demo-login"),
    path("t/<slug:slug>/", dashboard.dashboard, name="dashboard"),
    path("t/<slug:slug>/jobs/", jobs.job_list, name="job-list"),
    path("jobs/<uuid:uid>/", jobs.job_page, name="job"),
    path("pools/<slug:name>/line/", live.round_line, name="round-line"),
    path("", include("portal.urls_health")),
    path("", include("portal.urls_pools")),
    path("operate/", include("portal.urls_operator")),
    path("", include("portal.urls_submit")),
    path("api/v1/", include("portal.urls_api")),
]

handler400 = "portal.views.errors.bad_request"
handler500 = "portal.views.errors.server_error"
