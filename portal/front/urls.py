"""URLs of the front page."""

from django.urls import URLPattern, path

from portal.front import views

urlpatterns: list[URLPattern] = [
    path("", views.front, name="front"),
]
