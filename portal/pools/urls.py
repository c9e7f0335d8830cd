"""URLs of pools, their history, prices, start estimates and trades."""

from django.urls import URLPattern, path

from portal.pools.views import history, pool, pools, prices, starts, trades

urlpatterns: list[URLPattern] = [
    path("pools/", pools.pools, name="pool-list"),
    path("pools/<slug:name>/", pool.pool, name="pool"),
    path("pools/<slug:name>/history/", history.history, name="pool-history"),
    path("pools/<slug:name>/prices/", prices.prices, name="prices"),
    path(
        "pools/<slug:name>/prices/<slug:gpu_type>/<int:number>/",
        prices.posted_price,
        name="posted-price",
    ),
    path("pools/<slug:name>/prices.csv", prices.price_file, name="price-file"),
    path("pools/<slug:name>/starts/", starts.starts, name="starts"),
    path("pools/<slug:name>/trades/", trades.trades, name="trades"),
    path("pools/<slug:name>/trades/<int:number>/", trades.trade, name="trade"),
]
