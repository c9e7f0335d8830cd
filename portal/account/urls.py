"""URLs of login, logout and the user's account."""

from django.urls import URLPattern, path

from portal.account.views import account, join, language, notifications, openid, tokens

urlpatterns: list[URLPattern] = [
    path("login/", account.login_page, name="login"),
    path("login/openid/", openid.begin, name="openid"),
    path("login/openid/callback/", openid.callback, name="openid-callback"),
    path("account/openid/", openid.change, name="openid-change"),
    path("logout/", account.logout_page, name="logout"),
    path("demo/<slug:role>/", account.demo_login, name="demo-login"),
    path("join/", join.join, name="join"),
    path("language/", language.choose, name="language"),
    path("account/", account.account, name="account"),
    path("account/tokens/", tokens.token_list, name="tokens"),
    path("account/tokens/<uuid:uid>/revoke/", tokens.revoke, name="token-revoke"),
    path("account/notifications/", notifications.notifications, name="notifications"),
    path("account/notifications/off/<str:token>/", notifications.off, name="notification-off"),
    path(
        "account/notifications/confirm/<str:token>/",
        notifications.confirmation,
        name="notification-confirm",
    ),
    path(
        "account/notifications/messages/<uuid:uid>/again/",
        notifications.again,
        name="message-again",
    ),
    path(
        "account/notifications/<uuid:uid>/<slug:action>/",
        notifications.change,
        name="notification-change",
    ),
]
