"""Addresses of signing in and out, and of one's own account."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.account import tokens, views

urlpatterns: list[URLPattern] = [
    path("login/", views.login_page, name="login"),
    path("logout/", views.logout_page, name="logout"),
    path("demo/<slug:role>/", views.demo_login, name="demo-login"),
    path("account/", views.account, name="account"),
    path("account/tokens/", tokens.token_list, name="tokens"),
    path("account/tokens/<uuid:uid>/revoke/", tokens.revoke, name="token-revoke"),
]
