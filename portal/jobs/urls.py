"""URLs of a tenant's jobs."""

from django.urls import URLPattern, path

from portal.jobs.views import (
    actions,
    compare,
    curves,
    files,
    job_list,
    job_type,
    jobs,
    log,
    profiles,
    sessions,
    submit,
    sweeps,
    usage,
)

urlpatterns: list[URLPattern] = [
    path("t/<slug:slug>/jobs/", job_list.job_list, name="job-list"),
    path("t/<slug:slug>/jobs/act/", job_list.act, name="job-list-act"),
    path("t/<slug:slug>/jobs/filters/", job_list.keep_filter, name="job-list-filters"),
    path("t/<slug:slug>/jobs/columns/", job_list.keep_columns, name="job-list-columns"),
    path("t/<slug:slug>/jobs/new/", submit.job_new, name="job-new"),
    path("t/<slug:slug>/jobs/dry-run/", submit.dry_run, name="job-dry-run"),
    path("t/<slug:slug>/profiles/", profiles.profiles, name="profiles"),
    path("t/<slug:slug>/profiles/<slug:profile>/", job_type.job_type, name="profile"),
    path("sweeps/<uuid:sweep>/", sweeps.sweep_page, name="sweep"),
    path("sweeps/<uuid:sweep>/cancel/", sweeps.cancel, name="sweep-cancel"),
    path("sweeps/<uuid:sweep>/resubmit/", sweeps.resubmit, name="sweep-resubmit"),
    path("compare/", compare.compare_page, name="compare"),
    path("compare.csv", compare.compare_file, name="compare-file"),
    path("jobs/<uuid:uid>/", jobs.job_page, name="job"),
    path("jobs/<uuid:uid>/cancel/", actions.cancel, name="job-cancel"),
    path("jobs/<uuid:uid>/hold/", actions.hold, name="job-hold"),
    path("jobs/<uuid:uid>/release/", actions.release, name="job-release"),
    path("jobs/<uuid:uid>/priority/", actions.priority, name="job-priority"),
    path("jobs/<uuid:uid>/session/", sessions.open_page, name="job-session"),
    path("sessions/enter", sessions.enter, name="session-enter"),
    path("sessions/authorize", sessions.authorize, name="session-authorize"),
    path("jobs/<uuid:uid>/log/", log.log_page, name="job-log"),
    path("jobs/<uuid:uid>/files/", files.file_list, name="job-files"),
    path("jobs/<uuid:uid>/files/<path:path>", files.file_fetch, name="job-file"),
    path("jobs/<uuid:uid>/metrics/", curves.curves_region, name="job-metrics"),
    path("jobs/<uuid:uid>/metrics.csv", curves.curves_file, name="job-metrics-file"),
    path("jobs/<uuid:uid>/usage/", usage.usage_region, name="job-usage"),
]
