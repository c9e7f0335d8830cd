"""`evenshare offer ...` and `evenshare sharing ...`: lending and borrowing of a tenant's quota."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from typing import Any

from evenshare.errors import UsageError

from .api import Transport, part
from .terminal import Terminal, inert, when

MODES = ("RESERVE", "LEND", "LEND_AND_BORROW")
NO_LIMIT = "none"


def offer_list(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    offers = list(client.pages(_path("offers", options), options.limit))
    heads = ["ID", "TYPE", "GPUS", "FLOOR", "UNTIL", "EFFECT"]
    return screen.listed(offers, "no offers", heads, _row, "GPUS FLOOR")


def _row(offer: Mapping[str, Any]) -> list[str]:
    return [
        *(inert(offer[name]) for name in ("id", "gpu_type", "gpus", "floor_price")),
        when(offer.get("until")) or "-",
        inert(offer["text"]),
    ]


def offer_create(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body: dict[str, Any] = {"gpu_type": options.gpu_type, "gpus": options.gpus}
    body["floor_price"] = options.floor
    if options.until:
        body["until"] = options.until
    # A key makes the request repeatable: if the response is lost, a retry makes no second offer.
    key = options.idempotency_key or str(uuid.uuid4())
    offer = client.post(_path("offers", options), body, key=key)
    if screen.answered(offer):
        return 0
    screen.line(inert(offer["id"]))
    screen.note(inert(offer["text"]))
    return 0


def offer_revoke(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"{_path('offers', options)}/{part(options.offer)}"
    offer = client.call("DELETE", path, repeatable=True)
    if screen.answered(offer):
        return 0
    screen.line(inert(offer["text"]))
    screen.line(inert(offer["back"]["text"]))
    return 0


def show(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    _print(screen, client.get(_path("sharing", options)))
    return 0


def set_type(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body = {
        "mode": options.mode,
        "lend_limit": _count(options.lend_limit, "--lend-limit"),
        "borrow_limit": _count(options.borrow_limit, "--borrow-limit"),
        "by_offer": options.by_offer,
    }
    path = f"{_path('sharing', options)}/{part(options.gpu_type)}"
    row = client.call("PUT", path, body=body, repeatable=True)
    if screen.answered(row):
        return 0
    _table(screen, [row])
    if row.get("back"):
        screen.line(inert(row["back"]["text"]))
    return 0


def limit_price(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    price = None if options.price == NO_LIMIT else options.price
    path = _path("sharing", options)
    _print(screen, client.call("PUT", path, body={"max_price": price}, repeatable=True))
    return 0


def _path(what: str, options: argparse.Namespace) -> str:
    return f"/pools/{part(options.pool)}/{what}/{part(options.tenant)}"


def _count(text: str | None, option: str) -> int | None:
    if text is None or text == NO_LIMIT:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UsageError(f"{option} takes a whole number of GPUs, or {NO_LIMIT}")
    return int(text)


def _print(screen: Terminal, sharing: Mapping[str, Any]) -> None:
    if screen.answered(sharing):
        return
    _table(screen, sharing["results"])
    most = sharing.get("max_price")
    screen.note(f"maximum price of jobs: {inert(most) if most is not None else 'no limit'}")


def _table(screen: Terminal, rows: list[Mapping[str, Any]]) -> None:
    if not rows:
        screen.note("no quota")
        return
    heads = ["TYPE", "QUOTA", "IDLE", "LENDABLE", "MODE", "LENDS", "BORROWS", "BY", "PRICE"]
    screen.table(
        heads,
        [
            [
                inert(row["gpu_type"]),
                inert(row["gpus"]),
                inert(row["idle"]),
                inert(row["lendable"]),
                inert(row["effective"]["mode"]),
                _limit(row["effective"]["lend_limit"]),
                _limit(row["effective"]["borrow_limit"]),
                "offers" if row["own"]["by_offer"] else "any price",
                inert(row["price"]),
            ]
            for row in rows
        ],
        "QUOTA IDLE LENDABLE LENDS BORROWS PRICE",
    )


def _limit(value: object) -> str:
    return "any" if value is None else inert(value)
