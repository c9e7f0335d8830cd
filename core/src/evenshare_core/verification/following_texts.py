"""Why a round does not follow from the previous one: templates of the sentences.

Pages compare a sentence with these templates to translate it. So values are texts already: a number
has its marks, and a part of a sentence has its own template.
"""

# ---- parts of sentences ----

ROUND = "round {number}"
TENANT = "tenant {name}"
JOB = "job {name}"
FIELD = "{field} {now} instead of {was}"
OTHER = "{now} instead of {was}"
MARKS = "{count} marks"
POSTING = "{price} micro-credits for {used} of {capacity} GPUs used"
PLACES = "GPUs by node {now} instead of {was}"
GIVEN_BACK = "GPUs given back at {at} µs"
SUMS_OF_TENANT = "the sums of {tenant} for {gpu_type}"
SUMS_OF_CLASS = "the sums of jobs of {tenant} that ask for {demand} {gpu_type} with weight {weight}"
SUMS_OF_JOB = "the sums of {job}"

# ---- the first round, and the order of rounds ----

BEGINS_WITH = {
    "claims": "The first round begins with {count} sums of tenants.",
    "classes": "The first round begins with {count} sums of classes of jobs.",
    "jobs": "The first round begins with {count} sums of jobs.",
    "memory": "The first round begins with {count} entries of memory.",
    "leases": "The first round begins with {count} leases.",
    "prices": "The first round begins with {count} posted prices.",
}
OTHER_POOL = "It is a round of pool {pool}, but the previous round is of {other}."
NOT_NEXT = "It is round {number}, but the previous available round is {before}."
NOT_AFTER = "It is at {at} µs, which is not after {before} at {was} µs."

# ---- sums, prices, memory and changes ----

OTHER_TIME = "The sums are as of {at} µs, and {before} left them at {was} µs."
OTHER_ROWS = (
    "The sums have rows of {claims} claims and {jobs} jobs, and {before} left {claims_before} and"
    " {jobs_before}."
)
SUMS_MISSING = "{sums} are missing, and {before} left some."
SUMS_NEW = "{sums} are new, and {before} left none."
SUMS_DIFFER = "{sums} are not those that {before} left: {fields}."
SUMS_ORDER = "The order of the sums differs from the order that {before} left."
MORE_ROWS = "{count} more rows like the last one differ."
PRICE_MISSING = "{before} posted a price of {gpu_type}, which is missing."
PRICE_DIFFERS = "The price of {gpu_type} is {now}, and {before} posted {was}."
SURCHARGE_DIFFERS = (
    "The surcharge of {gpu_type} is {now} micro-credits for {queued} queued GPUs, and {before}"
    " posted {was} for {was_queued}."
)
MEMORY_OF_OTHER = (
    "It begins with a memory of {count} entries, though {before} was decided by another policy or"
    " version ({policy})."
)
MEMORY_DIFFERS = (
    "The policy's memory is not what {before} left: {count} of {entries} entries differ ({names})."
)
CHANGE_OUTSIDE = "A change ({kind}) is at {at} µs, not between {since} µs and {until} µs."
CHANGE_EARLIER = "A change ({kind}) at {at} µs comes after one at {last} µs."
QUOTA_DIFFERS = "A quota of {gpu_type} is {gpus} GPUs, and {counted} are counted in the sums."

# ---- jobs ----

NOT_COUNTED = "The sums do not count {job}, and no change says that it came."
CAME_FOR_OTHER = "{job} asks for {gpus} GPUs, and the change that says that it came for {counted}."
COUNTED_FOR_OTHER = "{job} asks for {gpus} GPUs, and its sums are of {counted}."
OVER_BUT_HERE = "A change says that {job} is over, and it is among the jobs."
GONE = "{job}, which waited, is gone, and no change says that it is over."
JOB_DIFFERS = "{job} differs from the job in {before}: {fields}."
HOLDS_OTHER = "A change says that {job} holds {gpus} GPUs, and it asks for {demand}."
BACKOFF_DIFFERS = (
    "{job} may not start before {now} µs, and {before} said {was} µs; it held nothing meanwhile."
)
HELD_DIFFERS = (
    "{job} asks for {gpus} GPUs and is of {tenant}; in {before} it asked for {gpus_before} and was"
    " of {tenant_before}."
)
RELEASED_EARLY = "{job} waits, and {before} said that it may not start before {until} µs."

# ---- leases ----

LEASE_ENDED = "{job} has a lease of {gpus} {gpu_type} that {before} ended."
LEASE_NOT_GRANTED = "{job} has a lease of {gpus} {gpu_type} that {before} did not grant."
NOT_LEASE_LEFT = "The lease of {job} differs from the one that {before} left."
NOT_LEASE_GRANTED = "The lease of {job} differs from the one that {before} granted."
LEASE_DIFFERS = "The lease of {job} is not as {before} left it: {fields}."
LEASE_GONE = (
    "{job} held {gpus} {gpu_type}, and its lease is gone: {before} did not end it, and no change"
    " says that it did."
)

TEXTS = (
    *(text for name, text in list(globals().items()) if name.isupper() and isinstance(text, str)),
    *BEGINS_WITH.values(),
)


def capital(text: str) -> str:
    """Return a text as the start of a sentence."""
    return text[:1].upper() + text[1:]
