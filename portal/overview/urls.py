"""URLs of a tenant's overview and of its lending and borrowing."""

from django.urls import URLPattern, path

from portal.overview.views import dashboard, sharing

urlpatterns: list[URLPattern] = [
    path("t/<slug:slug>/", dashboard.dashboard, name="dashboard"),
    path("t/<slug:slug>/sharing/", sharing.sharing, name="sharing"),
]
