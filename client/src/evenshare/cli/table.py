"""Every command as one row: its name, its function, its help and its options.

A new command is a new row of `COMMANDS`. `parser.py` adds `--output` and `--explain` to each.
"""

from __future__ import annotations

from . import (
    commands,
    completion,
    contribution,
    credit,
    job_order,
    jobs,
    login,
    lookups,
    notify,
    pools,
    quota,
    runs,
    sessions,
    sharing,
    statement,
    sweeps,
    usage,
    verify,
)
from .arguments import Argument, CommandRow, option, positive, whole
from .job_fields import COMMAND, JOB_FIELDS, JobField


def _job_option(field: JobField) -> Argument:
    about = field.about.replace("%", "%%").rstrip(".")
    if about[1:2].islower():  # keep the case of abbreviations
        about = about[:1].lower() + about[1:]
    metavar = field.option.lstrip("-").replace("-", "_").upper()
    if field.shape == "flag":
        return option(field.option, dest=field.name, action="store_const", const=True, help=about)
    if field.shape in ("texts", "pairs", "lists", "rows"):
        metavar = {"pairs": "K=V", "lists": "K=V,V", "rows": "K=V,K=V"}.get(field.shape, metavar)
        return option(
            field.option, dest=field.name, action="append", default=[], metavar=metavar,
            help=f"{about}; repeatable",
        )  # fmt: skip # rows of what belongs together
    return option(
        field.option, dest=field.name, metavar=metavar, help=about,
        type={"whole": positive, "signed": int}.get(field.shape, str),
    )  # fmt: skip # rows of what belongs together


def key(of: str) -> Argument:
    return option("--idempotency-key", metavar="K", help=f"the same key {of}")


JOB = option("id", metavar="ID", help="a job's id, or its first 8 characters or more")
SWEEP = option("id", metavar="ID", help="a sweep's id, or its first 8 characters or more")
SUBSCRIPTION = option("subscription", metavar="ID", help="its id, or the first 8 characters")
ANY_POOL, ANY_TENANT = option("--pool"), option("--tenant")
OWN_TENANT = option("--tenant", help="one of your tenants (default: your only tenant)")
POOL, TENANT = option("--pool", required=True), option("--tenant", required=True)
PAGES = (
    option("--limit", type=positive, default=20, help="default 20"),
    option("--all", dest="limit", action="store_const", const=None, help="every page"),
)
VKEY = option("--vkey", metavar="KEY", action="append", default=[], help="a public key of the log")
FILES = (
    option("--save-dir", metavar="D", help="store the files there, to verify on another machine"),
    option("--from-dir", metavar="D", help="verify stored files without the portal"),
    VKEY,
)
REPORTS = (
    option(
        "--accept", metavar="GAP", action="append", default=[], choices=verify.GAPS,
        help=f"parts that need not be proven (repeatable): {', '.join(verify.GAPS)}",
    ),
    option(
        "--no-report", action="store_true",
        help="do not report the verification and its outcome to the portal",
    ),
)  # fmt: skip # rows of what belongs together
JOB_OPTIONS = tuple(_job_option(f) for f in JOB_FIELDS if f.option not in ("", COMMAND))


def _limit(of: str) -> Argument:
    text = f"CPU time of {of} (default: 600; 0: no limit)"
    return option("--limit", metavar="SECONDS", type=whole, default=600, help=text)


SESSION = (
    option("--attach", metavar="ID", help="an interactive job that runs already, or waits"),
    ANY_POOL,
    option("--gpus", type=positive, default=1, help="default 1"),
    option("--gpu-type", action="append", default=[], metavar="T", help="accepted; repeatable"),
    ANY_TENANT,
    option("--for", dest="limit", type=sessions.seconds, metavar="2h", help="its time limit"),
    option(
        "--idle", type=sessions.seconds, metavar="30m",
        help="time without use after which its lease is not renewed",
    ),
)  # fmt: skip # rows of what belongs together

# The subjects of nouns that need more than the list of their verbs.
NOUNS = {
    "notify": "messages about jobs and offers",
    "offer": "offers of a tenant's idle quota",
    "sharing": "lending and borrowing of a tenant's quota",
}
COMMANDS = (
    CommandRow("shell", sessions.shell, "a terminal in a lease of GPUs", SESSION),
    CommandRow("notebook", sessions.notebook, "a notebook in a lease of GPUs", SESSION),
    CommandRow(
        "login",
        login.login,
        "store a token for a portal",
        (
            option("--url", help="the portal's address"),
            option("--token", help="an existing token; - reads it from standard input"),
            option("--username", help="login name; creates a token"),
            option("--password", help="default: prompt; - reads it from standard input"),
            option("--days", type=positive, default=30, help="lifetime in days (default 30)"),
            option(
                "--credit",
                action="store_true",
                help="the token may also request transfers of credits",
            ),
        ),
    ),
    CommandRow(
        "job submit",
        jobs.submit,
        "submit a job: options -- program argument ..., or -f job.yaml",
        (
            option(
                "-f",
                "--file",
                metavar="FILE",
                help="the job as YAML, as the portal copies it; - reads standard input",
            ),
            *JOB_OPTIONS,
            key("returns the same job"),
            option("--wait", action="store_true", help="wait until the job ends"),
            option(
                "--dry-run",
                action="store_true",
                help="do not submit, only estimate if it could start",
            ),
        ),
        takes_command=True,
    ),
    CommandRow(
        "job list",
        jobs.listing,
        "list jobs, newest first",
        (
            option("--state", help=", ".join((*jobs.ALL_STATES, *jobs.STATE_SYNONYMS))),
            ANY_POOL,
            ANY_TENANT,
            *PAGES,
        ),
    ),
    CommandRow("job show", jobs.show, "show one job", (JOB,)),
    CommandRow("job why", jobs.why, "show why it is queued, with numbers and next step", (JOB,)),
    CommandRow("job hold", job_order.hold, "hold it while it waits", (JOB,)),
    CommandRow("job release", job_order.release, "release it from its hold", (JOB,)),
    CommandRow(
        "job priority",
        job_order.priority,
        "set its priority among your tenant's jobs",
        (JOB, option("priority", type=int, help="from -100 to 100; above 0 only for managers")),
    ),
    CommandRow("job cancel", jobs.cancel, "cancel it; repeating is harmless", (JOB,)),
    CommandRow(
        "job logs",
        jobs.logs,
        "print a job's log",
        (
            JOB,
            option("--lease", type=positive, help="number of the lease (default: the last)"),
            option("--follow", action="store_true", help="print new lines until the job ends"),
        ),
    ),
    CommandRow(
        "job usage",
        usage.usage,
        "show its CPUs, memory and GPUs in use",
        (
            JOB,
            option(
                "--points",
                action="store_true",
                help="show use over time, instead of one line per lease",
            ),
        ),
    ),
    CommandRow(
        "job metrics",
        runs.metrics,
        "show the metrics that its program reports",
        (
            JOB,
            option("--name", help="one metric (default: all)"),
            option("--points", action="store_true", help="show every point"),
        ),
    ),
    CommandRow("job files", runs.files, "list the files that its program wrote", (JOB,)),
    CommandRow(
        "job fetch",
        runs.fetch,
        "download a file that its program wrote",
        (
            JOB,
            option("path", metavar="PATH", help="as `job files` lists it"),
            option("--to", metavar="FILE", help="where to store it (default: its name, here)"),
        ),
    ),
    CommandRow(
        "sweep list", sweeps.sweep_list, "list sweeps, newest first", (ANY_POOL, ANY_TENANT, *PAGES)
    ),
    CommandRow(
        "sweep show",
        sweeps.sweep_show,
        "show a sweep with its jobs",
        (SWEEP, option("--state", choices=sweeps.STATES, help="only jobs in this state")),
    ),
    CommandRow(
        "sweep cancel", sweeps.sweep_cancel, "cancel its jobs; repeating is harmless", (SWEEP,)
    ),
    CommandRow(
        "sweep resubmit",
        sweeps.sweep_resubmit,
        "submit its failed jobs again, as a new sweep",
        (SWEEP, key("returns the same sweep")),
    ),
    CommandRow(
        "member list",
        lookups.member_list,
        "list a tenant's members with their roles",
        (OWN_TENANT,),
    ),
    CommandRow(
        "profile list",
        lookups.profile_list,
        "list job types in a pool, with their speeds",
        (POOL, ANY_TENANT),
    ),
    CommandRow("notify list", notify.notify_list, "list your subscriptions"),
    CommandRow(
        "notify add",
        notify.notify_add,
        "subscribe to messages; the same address again changes the subscription",
        (
            option("--channel", choices=notify.CHANNELS, default="mail", help="default mail"),
            option("--address", help="mail address, or an https URL (default: your account's)"),
            option(
                "--kind",
                action="append",
                default=[],
                metavar="KIND",
                help="a kind of event, as job_started; repeatable (default: ends and idle GPUs)",
            ),
            option("--jobs", choices=notify.WHOSE, help="whose jobs (default: mine)"),
            option("--tag", help="only jobs with this tag"),
            ANY_POOL,
            OWN_TENANT,
            option(
                "--digest-hour",
                type=whole,
                metavar="H",
                help="by mail: one message a day at this hour, 0 to 23",
            ),
            option("--zone", help="time zone of that hour, as Europe/Berlin"),
        ),
    ),
    CommandRow("notify remove", notify.notify_remove, "end a subscription", (SUBSCRIPTION,)),
    CommandRow("notify test", notify.notify_test, "send a test message", (SUBSCRIPTION,)),
    CommandRow("pool list", pools.pool_list, "list your pools"),
    CommandRow(
        "pool show",
        pools.pool_show,
        "show a pool's policy, clock, GPUs and nodes",
        (option("pool", metavar="POOL"),),
    ),
    CommandRow(
        "quota",
        pools.quota,
        "show quotas: GPUs in use, idle and borrowed",
        (ANY_POOL, ANY_TENANT),
    ),
    CommandRow(
        "quota requests",
        quota.requests,
        "list requests for quota, newest first",
        (quota.STATE, ANY_POOL, ANY_TENANT, *PAGES),
    ),
    CommandRow(
        "quota request",
        quota.request,
        "request another quota; an operator decides",
        (*quota.WANTED, OWN_TENANT, key("requests once")),
    ),
    CommandRow("quota withdraw", quota.withdraw, "withdraw an open request", (quota.REQUEST,)),
    CommandRow("queue", commands.queue, "show a pool's queued jobs in order", (POOL,)),
    # Without a verb it is `price show`.
    CommandRow("price", commands.price, "show, history, forecast of posted prices", (ANY_POOL,)),
    CommandRow("price show", commands.price, "show the prices of the next terms", (ANY_POOL,)),
    CommandRow(
        "price history",
        commands.price_history,
        "list posted prices, newest first",
        (
            POOL,
            option("--type", required=True, metavar="TYPE", help="a GPU type"),
            option("--since", metavar="TIME", help="pool time, such as 2030-01-01T00:00:00Z"),
            option("--until", metavar="TIME", help="pool time, not included"),
            *PAGES,
        ),
    ),
    CommandRow("price forecast", commands.price_forecast, "show price forecasts", (POOL,)),
    CommandRow(
        "contribution",
        contribution.contribution,
        "show a tenant's income from lending, reconciled with the ledger",
        (
            option("--pool", help="a pool of the tenant (default: its only pool)"),
            OWN_TENANT,
            option("--since", metavar="INSTANT", help="RFC 3339, pool time"),
            option("--until", metavar="INSTANT", help="end (exclusive)"),
            option("--lines", action="store_true", help="list every income line, newest first"),
            option("--limit", type=positive, help="maximum number of lines (default: all)"),
        ),
    ),
    CommandRow(
        "offer list",
        sharing.offer_list,
        "list offers, newest first",
        (*PAGES, POOL, TENANT),
    ),
    CommandRow(
        "offer create",
        sharing.offer_create,
        "offer idle quota",
        (
            option("--gpu-type", required=True),
            option("--gpus", required=True, type=positive, help="lent while they are idle"),
            option("--floor", required=True, help="lowest price per GPU-hour; 0: any"),
            option("--until", metavar="T", help="RFC 3339, pool time"),
            key("returns the same offer"),
            POOL,
            TENANT,
        ),
    ),
    CommandRow(
        "offer revoke",
        sharing.offer_revoke,
        "revoke an offer; repeating is harmless",
        (option("offer", metavar="ID", help="an offer's id"), POOL, TENANT),
    ),
    CommandRow(
        "sharing show", sharing.show, "show settings in effect, by GPU type", (POOL, TENANT)
    ),
    CommandRow(
        "sharing set",
        sharing.set_type,
        "set a GPU type; omitted limits are removed",
        (
            option("--gpu-type", required=True),
            option("--mode", choices=sharing.MODES, default=sharing.MODES[-1]),
            option("--lend-limit", metavar="N", help="maximum of idle GPUs to lend, or none"),
            option("--borrow-limit", metavar="N", help="maximum of GPUs to borrow, or none"),
            option("--by-offer", action="store_true", help="lend only by offers"),
            POOL,
            TENANT,
        ),
    ),
    CommandRow(
        "sharing limit",
        sharing.limit_price,
        "set the maximum price of all jobs",
        (
            option("price", metavar="PRICE", help="credits per borrowed GPU-hour, or none"),
            POOL,
            TENANT,
        ),
    ),
    CommandRow("credit show", credit.show, "show spendable credits of tenants", (ANY_TENANT,)),
    CommandRow(
        "credit transfer",
        credit.transfer,
        "request a transfer of credits to another tenant",
        (
            option("--to", required=True, help="receiver: a tenant of your pools"),
            option("--amount", required=True, help="credits, with at most six decimals"),
            option("--reason", required=True, help="purpose, shown to the person who decides"),
            option("--tenant", help="sender, if you manage several tenants"),
            option("--book", help="the book (default: main)"),
            key("requests once"),
        ),
    ),
    CommandRow(
        "round verify",
        verify.round_verify,
        "recompute rounds on this machine from the portal's signed log",
        (
            option("round", metavar="N", nargs="?", type=positive, help="default: the newest"),
            option("--pool", help="optional with --from-dir"),
            option("--last", metavar="K", type=positive, help="the newest K rounds"),
            option("--since", metavar="T", help="rounds from T on, RFC 3339, pool time"),
            *FILES,
            _limit("each round's recomputation"),
            *REPORTS,
        ),
    ),
    CommandRow(
        "round pin",
        verify.round_pin,
        "store and print the head of a pool's rounds",
        (
            POOL,
            option("--show", action="store_true", help="print the stored head without a request"),
            option("--against", metavar="FILE", help="compare with a colleague's pin"),
            VKEY,
        ),
    ),
    CommandRow(
        "statement verify",
        statement.statement_verify,
        "recompute charges and incomes on this machine, to the micro-credit",
        (
            option("--from", dest="since", metavar="T", help="a day or an instant, pool time"),
            option("--to", dest="until", metavar="T", help="end (exclusive)"),
            option("--pool", help="a pool of the tenant (default: your only pool)"),
            OWN_TENANT,
            option("--without-rounds", action="store_true", help="download no rounds to compare"),
            *FILES,
            _limit("the recomputation"),
            *REPORTS,
        ),
    ),
    CommandRow(
        "completion",
        completion.completion,
        "print a script that completes commands in a shell",
        # The scripts call it with `words`, and what was typed after `--`.
        (option("shell", choices=(*completion.SCRIPTS, completion.ASKED)),),
        takes_command=True,
    ),
)
