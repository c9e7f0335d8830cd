"""URLs of rounds."""

from django.urls import URLPattern, path

from portal.rounds.views import counterfactual, live, rounds

urlpatterns: list[URLPattern] = [
    path("pools/<slug:name>/line/", live.round_line, name="round-line"),
    path("pools/<slug:name>/rounds/", rounds.round_list, name="round-list"),
    path("pools/<slug:name>/rounds/<int:number>/", rounds.round_page, name="round"),
    path(
        "pools/<slug:name>/rounds/<int:number>/counterfactual/",
        counterfactual.counterfactual_page,
        name="counterfactual",
    ),
    path(
        "pools/<slug:name>/rounds/<int:number>/<slug:table>/", rounds.round_rows, name="round-rows"
    ),
]
