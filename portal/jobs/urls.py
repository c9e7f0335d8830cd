"""URLs of a tenant's jobs."""

from django.urls import URLPattern, path

from portal.jobs.views import actions, job_type, jobs, log, profiles, submit, usage

urlpatterns: list[URLPattern] = [
    path("t/<slug:slug>/jobs/", jobs.job_list, name="job-list"),
    path("t/<slug:slug>/jobs/new/", submit.job_new, name="job-new"),
    path("t/<slug:slug>/jobs/dry-run/", submit.dry_run, name="job-dry-run"),
    path("t/<slug:slug>/profiles/", profiles.profiles, name="profiles"),
    path("t/<slug:slug>/profiles/<slug:profile>/", job_type.job_type, name="profile"),
    path("jobs/<uuid:uid>/", jobs.job_page, name="job"),
    path("jobs/<uuid:uid>/cancel/", actions.cancel, name="job-cancel"),
    path("jobs/<uuid:uid>/hold/", actions.hold, name="job-hold"),
    path("jobs/<uuid:uid>/release/", actions.release, name="job-release"),
    path("jobs/<uuid:uid>/priority/", actions.priority, name="job-priority"),
    path("jobs/<uuid:uid>/log/", log.log_page, name="job-log"),
    path("jobs/<uuid:uid>/usage/", usage.usage_region, name="job-usage"),
]
