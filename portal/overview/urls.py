"""URLs of a tenant's overview, of its lending, its requests for quota, and its members."""

from django.urls import URLPattern, path

from portal.overview.views import dashboard, members, quota, replays, sharing

urlpatterns: list[URLPattern] = [
    path("t/<slug:slug>/", dashboard.dashboard, name="dashboard"),
    path("t/<slug:slug>/sharing/", sharing.sharing, name="sharing"),
    path("t/<slug:slug>/quota/", quota.quota, name="quota"),
    path("t/<slug:slug>/members/", members.members, name="members"),
    path("t/<slug:slug>/replays/", replays.replays, name="replays"),
]
