"""URLs of probes and metrics: outside of all menus, without a slash as monitors expect."""

from django.urls import URLPattern, URLResolver, path

from portal.site import health_views as health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
