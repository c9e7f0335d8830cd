"""The grammar of the command line: a noun, a verb and options, and `--` before a job's program."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from evenshare import __version__

from . import commands, contribution, credit, jobs, login, sharing, statement, usage, verify
from .job_fields import COMMAND, JOB_FIELDS, JobField

EXIT_CODES = """exit codes:
  0  done; with --wait: the job succeeded
  2  the command line is wrong; nothing was sent
  3  refused, not reachable, not feasible; with --wait: the job did not succeed;
     verify and pin: data differs from the signed log or the statement
  4  conflict: the idempotency key belongs to another job, or the state has changed
  5  verify: no errors, but not all parts are proven; the last lines show what to do
  130  interrupted; the job goes on

environment:
  EVENSHARE_URL, EVENSHARE_TOKEN override the stored login
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="evenshare",
        description="Submit jobs to a shared GPU cluster and see why they are queued.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"evenshare {__version__}")
    nouns = top.add_subparsers(metavar="COMMAND", required=True, dest="noun")
    _login(nouns)
    job = nouns.add_parser(
        "job", help="submit, list, show, why, cancel, logs, usage", allow_abbrev=False
    )
    verbs = job.add_subparsers(metavar="VERB", required=True, dest="verb")
    _submit(verbs)
    _list(verbs)
    for name, run, text in (
        ("show", jobs.show, "show one job"),
        ("why", jobs.why, "show why it is queued, with numbers and next step"),
        ("cancel", jobs.cancel, "cancel it; repeating is harmless"),
    ):
        _leaf(verbs, name, run, text).add_argument("id", metavar="ID", help=ID)
    _logs(verbs)
    used = _leaf(verbs, "usage", usage.usage, "show its CPUs, memory and GPUs in use")
    used.add_argument("id", metavar="ID", help=ID)
    used.add_argument(
        "--points", action="store_true", help="show use over time, instead of one line per lease"
    )
    queue = _leaf(nouns, "queue", commands.queue, "show a pool's queued jobs in order")
    queue.add_argument("--pool", required=True)
    _price(nouns)
    _contribution(nouns)
    _offers(nouns)
    _sharing(nouns)
    _credit(nouns)
    _round(nouns)
    _statement(nouns)
    return top


def _price(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `price`; without a verb it is `price show`."""
    price = _leaf(nouns, "price", commands.price, "show, history, forecast of posted prices")
    price.add_argument("--pool")
    verbs = price.add_subparsers(metavar="VERB", dest="verb")
    show = _leaf(verbs, "show", commands.price, "show the prices of the next terms")
    show.add_argument("--pool")
    history = _leaf(verbs, "history", commands.price_history, "list posted prices, newest first")
    history.add_argument("--pool", required=True)
    history.add_argument("--type", required=True, metavar="TYPE", help="a GPU type")
    history.add_argument("--since", metavar="TIME", help="pool time, as 2030-01-01T00:00:00Z")
    history.add_argument("--until", metavar="TIME", help="pool time, not included")
    history.add_argument("--limit", type=_positive, default=20, help="default 20")
    history.add_argument("--all", action="store_true", help="every page")
    forecast = _leaf(verbs, "forecast", commands.price_forecast, "show price forecasts")
    forecast.add_argument("--pool", required=True)


ID = "a job's id, or its first 8 characters or more"


def _leaf(
    nouns: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[..., int],
    text: str,
) -> argparse.ArgumentParser:
    leaf = nouns.add_parser(name, help=text, description=text, allow_abbrev=False)
    leaf.add_argument("--output", choices=("table", "json"), default="table")
    leaf.add_argument(
        "--explain", action="store_true", help="print the HTTP call instead of making it"
    )
    leaf.set_defaults(run=run, usage=leaf.format_usage)
    return leaf


def _login(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    leaf = _leaf(nouns, "login", login.login, "store a token for a portal")
    leaf.add_argument("--url", help="the portal's address")
    leaf.add_argument("--token", help="an existing token; - reads it from standard input")
    leaf.add_argument("--username", help="login name; creates a token")
    leaf.add_argument("--password", help="default: prompt; - reads it from standard input")
    leaf.add_argument("--days", type=_positive, default=30, help="lifetime in days (default 30)")
    leaf.add_argument(
        "--credit", action="store_true", help="the token may also request transfers of credits"
    )


def _credit(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    noun = nouns.add_parser("credit", help="show, transfer", allow_abbrev=False)
    verbs = noun.add_subparsers(metavar="VERB", required=True, dest="verb")
    show = _leaf(verbs, "show", credit.show, "show spendable credits of tenants")
    show.add_argument("--tenant")
    give = _leaf(
        verbs, "transfer", credit.transfer, "request a transfer of credits to another tenant"
    )
    give.add_argument("--to", required=True, help="receiver: a tenant of your pools")
    give.add_argument("--amount", required=True, help="credits, with at most six decimals")
    give.add_argument("--reason", required=True, help="purpose, shown to the person who decides")
    give.add_argument("--tenant", help="sender, if you manage several tenants")
    give.add_argument("--book", help="the book (default: main)")
    give.add_argument("--idempotency-key", metavar="K", help="the same key requests once")


def _submit(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    leaf = _leaf(verbs, "submit", jobs.submit, "submit a job: options -- program argument ...")
    for field in JOB_FIELDS:
        if field.option not in ("", COMMAND):
            _job_option(leaf, field)
    leaf.add_argument("--idempotency-key", metavar="K", help="the same key returns the same job")
    leaf.add_argument("--wait", action="store_true", help="wait until the job ends")
    leaf.add_argument(
        "--dry-run",
        action="store_true",
        help="do not submit, only estimate if it could start",
    )
    leaf.set_defaults(takes_command=True)


def _job_option(leaf: argparse.ArgumentParser, field: JobField) -> None:
    about = field.about.replace("%", "%%").rstrip(".")
    if about[1:2].islower():  # keep the case of abbreviations
        about = about[:1].lower() + about[1:]
    metavar = field.option.lstrip("-").replace("-", "_").upper()
    if field.shape in ("texts", "pairs"):
        metavar = "K=V" if field.shape == "pairs" else metavar
        leaf.add_argument(
            field.option, dest=field.name, action="append", default=[], metavar=metavar,
            help=f"{about}; repeatable",
        )  # fmt: skip # rows of what belongs together
    else:
        leaf.add_argument(
            field.option, dest=field.name, required=field.is_required, metavar=metavar, help=about,
            type=_positive if field.shape == "whole" else str,
        )  # fmt: skip # rows of what belongs together


def _list(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    leaf = _leaf(verbs, "list", jobs.listing, "list jobs, newest first")
    leaf.add_argument("--state", help=", ".join((*jobs.ALL_STATES, *jobs.STATE_SYNONYMS)))
    leaf.add_argument("--pool")
    leaf.add_argument("--tenant")
    leaf.add_argument("--limit", type=_positive, default=20, help="default 20")
    leaf.add_argument("--all", action="store_true", help="every page")


def _logs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    leaf = _leaf(verbs, "logs", jobs.logs, "print a job's log")
    leaf.add_argument("id", metavar="ID", help=ID)
    leaf.add_argument("--lease", type=_positive, help="number of the lease (default: the last)")
    leaf.add_argument("--follow", action="store_true", help="print new lines until the job ends")


def _contribution(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "show a tenant's income from lending, reconciled with the ledger"
    leaf = _leaf(nouns, "contribution", contribution.contribution, about)
    leaf.add_argument("--pool", help="a pool of the tenant (default: its only pool)")
    leaf.add_argument("--tenant", help="one of your tenants (default: your only tenant)")
    leaf.add_argument("--since", metavar="INSTANT", help="RFC 3339, pool time")
    leaf.add_argument("--until", metavar="INSTANT", help="end (exclusive)")
    leaf.add_argument("--lines", action="store_true", help="list every income line, newest first")
    leaf.add_argument("--limit", type=_positive, help="maximum number of lines (default: all)")


def _offers(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "offers of a tenant's idle quota: list, create, revoke"
    verbs = nouns.add_parser("offer", help=text, allow_abbrev=False).add_subparsers(
        metavar="VERB", required=True, dest="verb"
    )
    listing = _leaf(verbs, "list", sharing.offer_list, "list offers, newest first")
    listing.add_argument("--limit", type=_positive, default=20, help="default 20")
    listing.add_argument("--all", action="store_true", help="every page")
    create = _leaf(verbs, "create", sharing.offer_create, "offer idle quota")
    create.add_argument("--gpu-type", required=True)
    create.add_argument("--gpus", required=True, type=_positive, help="lent while they are idle")
    create.add_argument("--floor", required=True, help="lowest price per GPU-hour; 0: any")
    create.add_argument("--until", metavar="T", help="RFC 3339, pool time")
    create.add_argument(
        "--idempotency-key", metavar="K", help="the same key returns the same offer"
    )
    revoke = _leaf(verbs, "revoke", sharing.offer_revoke, "revoke an offer; repeating is harmless")
    revoke.add_argument("id", metavar="ID", help="an offer's id")
    for leaf in (listing, create, revoke):
        _of_a_tenant(leaf)


def _sharing(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "lending and borrowing of a tenant's quota: show, set, limit"
    verbs = nouns.add_parser("sharing", help=text, allow_abbrev=False).add_subparsers(
        metavar="VERB", required=True, dest="verb"
    )
    show = _leaf(verbs, "show", sharing.show, "show settings in effect, by GPU type")
    change = _leaf(verbs, "set", sharing.set_type, "set a GPU type; omitted limits are removed")
    change.add_argument("--gpu-type", required=True)
    change.add_argument("--mode", choices=sharing.MODES, default=sharing.MODES[-1])
    change.add_argument("--lend-limit", metavar="N", help="maximum of idle GPUs to lend, or none")
    change.add_argument("--borrow-limit", metavar="N", help="maximum of GPUs to borrow, or none")
    change.add_argument("--by-offer", action="store_true", help="lend only by offers")
    most = _leaf(verbs, "limit", sharing.limit_price, "set the maximum price of all jobs")
    most.add_argument("price", metavar="PRICE", help="credits per borrowed GPU-hour, or none")
    for leaf in (show, change, most):
        _of_a_tenant(leaf)


def _round(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    noun = nouns.add_parser("round", help="verify, pin", allow_abbrev=False)
    verbs = noun.add_subparsers(metavar="VERB", required=True, dest="verb")
    about = "recompute rounds on this machine from the portal's signed log"
    leaf = _leaf(verbs, "verify", verify.round_verify, about)
    leaf.add_argument("round", metavar="N", nargs="?", type=_positive, help="default: the newest")
    leaf.add_argument("--pool", help="optional with --from-dir")
    leaf.add_argument("--last", metavar="K", type=_positive, help="the newest K rounds")
    leaf.add_argument("--since", metavar="T", help="rounds from T on, RFC 3339, pool time")
    _verifies(leaf, "each round's recomputation")
    pin = _leaf(verbs, "pin", verify.round_pin, "store and print the head of a pool's rounds")
    pin.add_argument("--pool", required=True)
    pin.add_argument("--show", action="store_true", help="print the stored head without a request")
    pin.add_argument("--against", metavar="FILE", help="compare with a colleague's pin")
    _vkey(pin)


def _statement(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    noun = nouns.add_parser("statement", help="verify", allow_abbrev=False)
    verbs = noun.add_subparsers(metavar="VERB", required=True, dest="verb")
    about = "recompute charges and incomes on this machine, to the micro-credit"
    leaf = _leaf(verbs, "verify", statement.statement_verify, about)
    leaf.add_argument("--from", dest="since", metavar="T", help="a day or an instant, pool time")
    leaf.add_argument("--to", dest="until", metavar="T", help="end (exclusive)")
    leaf.add_argument("--pool", help="a pool of the tenant (default: your only pool)")
    leaf.add_argument("--tenant", help="one of your tenants (default: your only tenant)")
    leaf.add_argument("--without-rounds", action="store_true", help="download no rounds to compare")
    _verifies(leaf, "the recomputation")


def _verifies(leaf: argparse.ArgumentParser, of: str) -> None:
    leaf.add_argument(
        "--save-dir", metavar="D", help="store the files there, to verify on another machine"
    )
    leaf.add_argument("--from-dir", metavar="D", help="verify stored files without the portal")
    _vkey(leaf)
    _limits(leaf, of)
    _accepts(leaf)
    _reports(leaf)


def _vkey(leaf: argparse.ArgumentParser) -> None:
    about = "a public key of the log"
    leaf.add_argument("--vkey", metavar="KEY", action="append", default=[], help=about)


def _limits(leaf: argparse.ArgumentParser, of: str) -> None:
    text = f"CPU time of {of} (default: 600; 0: no limit)"
    leaf.add_argument("--limit", metavar="SECONDS", type=_whole, default=600, help=text)


def _reports(leaf: argparse.ArgumentParser) -> None:
    text = "do not report the verification and its outcome to the portal"
    leaf.add_argument("--no-report", action="store_true", help=text)


def _accepts(leaf: argparse.ArgumentParser) -> None:
    text = f"parts that need not be proven (repeatable): {', '.join(verify.GAPS)}"
    leaf.add_argument(
        "--accept", metavar="GAP", action="append", default=[], choices=verify.GAPS, help=text
    )


def _of_a_tenant(leaf: argparse.ArgumentParser) -> None:
    leaf.add_argument("--pool", required=True)
    leaf.add_argument("--tenant", required=True)


def _whole(text: str) -> int:
    return 0 if text == "0" else _positive(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not int(text[:10]) >= 1 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
