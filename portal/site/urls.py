"""URLs of all pages; each area has its own file."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    *(
        path("", include(f"portal.{area}.urls"))
        for area in ("front", "account", "overview", "jobs", "pools", "rounds", "ledger")
    ),
    path("operate/", include("portal.operate.urls")),
    path("", include("portal.site.urls_health")),
    path("api/v1/", include("portal.site.urls_api")),
]

handler400 = "portal.site.error_views.bad_request"
handler404 = "portal.site.error_views.missing_page"
handler500 = "portal.site.error_views.server_error"
