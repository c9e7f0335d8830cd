"""Texts that are stored in English with their values, and translated where a page shows them.

A text here is a template. The code that stores it fills in the values, and a page compares the
stored text with all templates (`tenants.language.StoredTexts`).
"""

from evenshare_core.domain.reason_texts import WITH_VALUES
from tenants.language import StoredTexts, gettext_noop

# ---- why a simulation or a replay failed ----

SIMULATION_LOST = gettext_noop(
    "Its process is gone or did not respond for a minute: probably its worker was stopped."
    " Nothing was changed; start it again."
)
SIMULATION_FAILED = gettext_noop("It failed: {error}. Nothing was changed.")
NOT_STARTED = gettext_noop("It could not be started: {error}. Try again later.")
TOOK_LONG = gettext_noop(
    "It took longer than {minutes} minutes and was stopped at {percent} %. Choose a shorter time or"
    " a simpler policy, or try again when fewer jobs are open."
)
ORPHANED = gettext_noop("The worker that started it was stopped.")
START_AGAIN = gettext_noop("{cause} Nothing was changed; start it again once workers run.")
POLICY_CHANGED = gettext_noop(
    "The pool's policy changed after the request. Start the replay again."
)
NO_NODE = gettext_noop("pool {pool} has no node to simulate")
NO_JOB = gettext_noop("pool {pool} has no job to simulate")
NO_JOB_IN_TIME = gettext_noop(
    "pool {pool} has no job to simulate that was submitted in {days} of its time; take more days"
)
LAST_DAY = gettext_noop("the last day")
LAST_DAYS = gettext_noop("the last {count} days")
LENGTH_BOUNDS = gettext_noop("the least is {least} s ({why}), the most {most} s")
LEAST_ROUND = gettext_noop("a round of pool time")
LEAST_LENGTH = gettext_noop("the pool's shortest lease length")
NO_LENGTH = gettext_noop(
    "--lengths: this pool cannot have leases of {lengths}; {bounds}; name others, or change the"
    " pool's bounds"
)

# ---- what the runs of a pool's last days ignore ----

LEFT_OUT = gettext_noop("A policy is left out: {why}.")
LENGTHS_SKIPPED = gettext_noop(
    "Lengths outside the pool's bounds are skipped: {lengths} s; {bounds}."
)
OLD_JOBS = gettext_noop(
    "Jobs from before the run's start that had not ended, which are skipped: {count}."
)
OTHER_POLICY = gettext_noop(
    "Rounds decided by another policy; the run uses the present policy: {count}."
)
OTHER_QUOTAS = gettext_noop(
    "Quotas that began later or have an end; the run uses the present quotas: {count}."
)
NODES_AWAY = gettext_noop("Nodes that are not up, which offer no GPUs in the run: {count}.")
WINDOWS = gettext_noop("Maintenance windows, which the run ignores: {count}.")
CREDIT_LIMITS = gettext_noop("Tenants with a credit limit, which the run ignores: {count}.")
QUARANTINED = gettext_noop("Jobs in quarantine, which are skipped: {count}.")
GUESSED = gettext_noop("Jobs that have not ended, whose work is estimated: {count}.")
SCALED = gettext_noop(
    "Jobs whose deadline has fewer than 100 points, which the run takes as 100: {count}."
)
ON_DEMAND = gettext_noop("Rounds on demand, between two instants of the grid, are skipped.")

# ---- how a job's files contradict its engine; instants of the wall clock ----

OTHER_START = gettext_noop("it started at {at}; the engine: at {seen}")
NO_START = gettext_noop("no start; the engine: it started at {seen}")
OTHER_END = gettext_noop("it ended at {at}; the engine: at {seen}")
ENDED_BUT_RUNS = gettext_noop("it ended; the engine: it runs")
ENDED_AT_BUT_RUNS = gettext_noop("it ended at {at}; the engine: it runs")

# ---- why an engine cannot use a file of a job ----

USAGE_FILE = gettext_noop("usage.{rank}.json of lease {lease} {why}")
METRICS_FILE = gettext_noop("metrics.json {why}")
TOO_LONG = gettext_noop("is longer than {most} bytes")
NOT_AS_DESCRIBED = gettext_noop("is not as described in {document}")
OTHER_VERSION = gettext_noop("is not of version {version}")
NO_JSON = gettext_noop("is no JSON")
NO_OBJECT = gettext_noop("is not a JSON object")
NO_OBJECT_OF_VERSION = gettext_noop("is not a JSON object of version {version}")
OTHER_RANK = gettext_noop("belongs to another rank")
TOO_MANY_ROWS = gettext_noop("has more than {most} rows")
TOO_MANY_GPUS = gettext_noop("has more GPUs than its lease")
NO_ORDER = gettext_noop("has rows out of order")
UNEVEN_ROWS = gettext_noop("has rows with different numbers of GPUs")
HIGH_MEAN = gettext_noop("has a mean above its peak")
TOO_MANY_POINTS = gettext_noop("has more than {names} names or {points} points")
NO_NUMBER = gettext_noop("has no whole number in {name}")
NO_METRIC_NAME = gettext_noop("has no text in metric")
NO_LIST = gettext_noop("has no list of at most {most} points")
NO_POINT = gettext_noop("has a point that is not a whole number and a number")
OTHER_METRIC = gettext_noop("is not for the metric of the job's criterion")
FEWER_ITERATIONS = gettext_noop("counts fewer iterations, or less time, than before")
FAST_ITERATIONS = gettext_noop("has iterations of less than a microsecond")
MORE_TIME = gettext_noop("reports more time than its lease ran")
LONG_SUSPENSION = gettext_noop("took longer to suspend than its lease ran")

# ---- what an engine refuses; `error` is its own text ----

NOT_DRAINED = gettext_noop("not drained there: {error}")
NOT_RESUMED = gettext_noop("not resumed there: {error}")

# ---- why an executor fails; a text of a tool or a library is unchanged ----

TOOL_SILENT = gettext_noop("{tool} did not answer within {seconds} s")
NO_TOOL = gettext_noop("{tool} is not installed here: the portal needs Slurm's client tools")
SILENT_AS_USER = gettext_noop("{tool} as {user} did not answer within {seconds} s")
NOT_ASKED = gettext_noop("not asked: {count} calls in a row failed, the last: {error}")
NO_EXECUTOR = gettext_noop("executor {executor} is not installed; installed are {installed}")
RUNS_AS_PORTAL = gettext_noop(
    "executor {executor} runs jobs as the portal's user: not in production"
)
NO_PARTITION = gettext_noop("{where}: the partition {partition} does not exist, or has no nodes")
NODES_NOT_LISTED = gettext_noop("squeue did not list the nodes of job {job}")
NO_WATCH = gettext_noop("{folder}: is not a folder of a watch ({error})")
NO_SLURM_OPERATOR = gettext_noop("{error}: the portal's user is not a Slurm operator ({document})")
MANY_LISTED = gettext_noop("squeue lists {count} jobs; at most {most} are watched")
TOKEN_REJECTED = gettext_noop("{where} rejects the token or the user ({status})")
NO_ANSWER = gettext_noop("{where} gives no answer of {version} ({trouble})")
TOKEN_EXPIRED = gettext_noop("the token in {path} has expired: write a new token there")
TOKEN_UNREADABLE = gettext_noop("the token of slurmrestd in {path} cannot be read ({error})")
TOKEN_OF_OTHER = gettext_noop(
    "the token in {path} is for the user {other}, the portal runs as {user}: write one for {user}"
    " there"
)
NO_TOKEN = gettext_noop("{path} contains no token of `scontrol token`")
OTHER_PEER = gettext_noop(
    "it runs as the user {other}, the portal as {user}: run it as the portal's user, or give"
    " `token_file`"
)
NO_OWN_NAME = gettext_noop("the portal's user {user} has no name here")
SUBMITS_AS_OTHER = gettext_noop(
    "{where} submits jobs as the user {other}, the portal is {user}: use one user with the same"
    " number everywhere"
)
FOLDER_GONE = gettext_noop(
    "the folder {folder} is gone, although jobs run: mount it again, or create {active} to give up"
    " the jobs that ran there"
)
WRONG_OPTIONS = gettext_noop(
    "executor_options of the pool {pool} are wrong: {error}; see {document}"
)

# ---- why a job cannot run as its tenant's Unix user ----

NO_USER_OF_TENANT = gettext_noop(
    "the tenant {tenant} has no Unix user: name one in `users` of executor_options"
)
NO_USER = gettext_noop("there is no Unix user {user} on the portal's machine")
USER_IS_ROOT = gettext_noop("the Unix user {user} is root: jobs never run as root")
USER_OF_PORTAL = gettext_noop("the Unix user {user} is the portal's own: use another user")
GROUP_OF_PORTAL = gettext_noop(
    "the primary group of the Unix user {user} belongs to root or the portal: give the user its own"
    " group"
)
NOT_IN_GROUP = gettext_noop(
    "the portal's user is not in the primary group of {user} ({number}): add it (usermod -aG) and"
    " start the portal again"
)
ONE_USER = gettext_noop(
    "the Unix users {user} and {other} are one user ({number}) with two names: use one"
)
ONE_GROUP = gettext_noop(
    "the Unix users {user} and {other} have one primary group ({number}), and could read each"
    " other's files: give each user its own group"
)
FILES_OF_OTHERS = gettext_noop(
    "files in {folder} ({files}) do not belong to {user}, the user of this tenant's jobs: change"
    " their owner (docs/slurm.md, Users of tenants)"
)
FOLDER_NOT_SHARED = gettext_noop("its folder cannot be shared with the Unix user {user}: {error}")
NOT_AS_USER = gettext_noop("nothing can be submitted as {user}: {error}")
NO_PROGRAM = gettext_noop("{program} is not installed here")

# ---- why a round cannot be decided again ----

NOT_KEPT = gettext_noop("the bytes of round {number} are no longer kept")
DAMAGED = gettext_noop("round {number} is damaged: {damages}")
TOO_MANY_JOBS = gettext_noop("{count} jobs are more than the {most}")

_OWN = [text for name, text in globals().items() if name.isupper() and isinstance(text, str)]
STORED = StoredTexts([*WITH_VALUES, *_OWN])
