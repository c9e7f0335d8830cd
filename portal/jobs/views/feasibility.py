"""The result of a dry run: a verdict, its numbers, the price, and smaller alternatives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from evenshare_core.domain.reason_texts import LARGER_THAN_POOL
from evenshare_core.domain.reasons import Reason
from portal.charts.figures import credits_text, duration, plural, thousands
from portal.jobs.forms.fields import LABELS
from portal.jobs.forms.submit import JobForm
from portal.jobs.text.answer import preview_text
from scheduling.engine.clock import Clocks
from scheduling.requests.sweeps import is_sweep
from scheduling.selectors.jobs.reasons import any_of, why
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.sweep_jobs import count_jobs
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant, User

DECIDES = "The next round decides; queued jobs may be ahead of it."
HOUR_S = 3600
WAYS = 3
DEADLINE_FIELDS = ("job_class", "deadline", "deadline_steps")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run the job.

    `term_credits`: the maximum cost of a lease term, or None if nothing is borrowed. `prices`:
    credits per borrowed GPU-hour, lowest and highest: as posted now, and with the job's own GPUs in
    use.
    """

    gpus: int
    run: DryRun
    term_credits: Decimal | None
    as_written: bool = False

    @property
    def prices(self) -> tuple[Decimal, ...]:
        """Return one price, or the lowest and the highest if they print differently."""
        low, high = sorted((self.run.price, self.run.price_after))
        return (low,) if credits_text(low) == credits_text(high) else (low, high)

    @property
    def text(self) -> str:
        if self.run.reason_code == Reason.TOO_LARGE:
            return LARGER_THAN_POOL.text  # A dry run also counts drained nodes.
        return why(self.run.reason_code).text if self.run.reason_code else ""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The panel's content. `kind` is the state's shape; `ways` starts with the job as written.

    `never`: why the job cannot be submitted; empty if it can. `deadline_text`: the next round's
    answer to its deadline; empty if it has none. `sweep_text`: how many jobs it makes, if a sweep.
    """

    kind: str
    verdict: str
    sentence: str
    text: str = ""
    price_text: str = ""
    ways: tuple[Way, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    never: str = ""
    deadline_text: str = ""
    sweep_text: str = ""

    @property
    def said(self) -> str:
        """Return the texts that a new answer must change to be announced."""
        return f"{self.verdict} {self.sentence} {self.sweep_text} {self.price_text}"


def answer_feasibility(
    form: JobForm,
    offer: PoolOffer | None,
    *,
    tenant: Tenant,
    user: User,
    now: Clocks,
    pools: Sequence[str] = (),
    free: int = 0,
) -> Feasibility:
    """Return the answer to a form, and add errors to the form's fields.

    `pools`: the tenant's pools; `free`: the most free GPUs of one type.
    """
    if form.spec is None:
        return Feasibility("warn", "YAML errors", "The YAML cannot be read.", form.beside[0])
    run = None
    try:
        run = dry_run_job(tenant=tenant, user=user, spec=form.spec, now=now)
    except InvalidInputError as error:
        form.refuse(error, pools)
    if run is None or offer is None:
        return _unfinished(form)
    # A job larger than the pool gets an answer with alternatives, not only a field error.
    if form.wrong and run.reason_code != Reason.TOO_LARGE:
        return _unfinished(form)
    gpus = form.spec["gpus"]
    assert isinstance(gpus, int)  # noqa: S101 - the dry run took it
    first = _way(gpus, run, offer, as_written=True)
    ways = [first]
    if run.reason_code:
        sizes = _sizes(gpus, free, most_gpus(form.spec, offer))
        ways += _smaller(form.spec, sizes, offer, tenant=tenant, now=now)
    return replace(
        _verdict(first),
        price_text=_price_text(first, offer),
        ways=tuple(ways),
        never=first.text if run.never else "",
        deadline_text=preview_text(run.deadline),
        sweep_text=_sweep_text(form.spec, offer) if is_sweep(form.spec) else "",
    )


def _sweep_text(spec: Mapping[str, object], offer: PoolOffer) -> str:
    count, at_once = count_jobs(spec, offer)
    limit = "" if at_once is None else f", at most {thousands(at_once)} at once"
    return f"It makes {plural(count, 'job')}{limit}. The answer is for the first one."


def _unfinished(form: JobForm) -> Feasibility:
    count = form.wrong
    things = "One field is" if count == 1 else f"{count} fields are"
    fields = tuple((f"f-{name}", LABELS[name]) for name in LABELS if form.errors[name])
    if form.beside:
        fields += (("yaml", "YAML"),)
    text = "See the fields in red. Nothing was submitted, and your input is kept."
    return Feasibility("warn", "Not complete", f"{things} missing or wrong.", text, fields=fields)


def _verdict(way: Way) -> Feasibility:
    run = way.run
    if not run.feasible:
        return Feasibility("bad", "Not feasible", f"It cannot start: {way.text}.", run.detail)
    if run.reason_code:
        sentence = f"It can run, but not now: {way.text}."
        return Feasibility("note", "Feasible, later", sentence, run.detail)
    own, borrowed = plural(run.own, "own GPU"), run.borrowed
    ahead = run.next_round
    if ahead is not None and ahead.preempted.count:
        count = plural(ahead.preempted.count, "lease")
        sentence = f"The next round would start it: {count} would end to make room."
        return Feasibility("ok", "Feasible", sentence, run.detail)
    if not borrowed:
        text = f"{DECIDES} Within quota: free of charge."
        return Feasibility("ok", "Feasible", f"It fits now, on {own}.", text)
    if not run.own:
        sentence = f"It fits now, on {plural(borrowed, 'borrowed GPU')}."
    else:
        sentence = f"It fits now, on {own} and {thousands(borrowed)} borrowed."
    text = f"{DECIDES} Borrowed GPUs go back at the end of a term when their owners need them."
    return Feasibility("ok", "Feasible", sentence, text)


def _price_text(way: Way, offer: PoolOffer) -> str:
    if way.term_credits is None:
        return ""
    borrowed = plural(way.run.borrowed, "GPU")
    prices = [credits_text(price) for price in way.prices]
    when = " as posted now"
    if len(prices) > 1:
        when = (
            f": {credits_text(way.run.price)} as posted now, {credits_text(way.run.price_after)}"
            " from its first renewal on, because its own GPUs then raise the price, if nothing"
            " else changes"
        )
    others = way.run.other_types
    of_type = f" of {way.run.gpu_type}" if others else ""
    text = (
        f"Borrowing {borrowed}{of_type} costs {' to '.join(prices)} credits per GPU-hour{when}."
        f" One lease term of {duration(offer.lease_s)} costs at most"
        f" {credits_text(way.term_credits, 4)} credits."
    )
    if others:  # every round tries all accepted types
        text += f" It may start on {any_of(others)} instead, at the price there."
    return text


def _way(gpus: int, run: DryRun, offer: PoolOffer, *, as_written: bool = False) -> Way:
    cost = None
    if run.borrowed:
        exact = max(run.price, run.price_after) * run.borrowed * offer.lease_s / HOUR_S
        cost = exact.quantize(Decimal("0.0001"), ROUND_CEILING)
    return Way(gpus, run, cost, as_written)


def most_gpus(spec: Mapping[str, object], offer: PoolOffer) -> int:
    """Return the GPUs of the largest accepted type; a job that names no type accepts all."""
    named = spec.get("gpu_types")
    accepted = set(named) if isinstance(named, list | tuple) and named else set(offer.gpus)
    return max((gpus for name, gpus in offer.gpus.items() if name in accepted), default=0)


def _sizes(gpus: int, free: int, largest: int) -> list[int]:
    """Return smaller sizes to try, largest first: halves, the free GPUs, the largest possible."""
    sizes = {min(gpus // 2, largest), gpus // 4, 1, free if free < gpus else 0}
    if gpus > largest:
        sizes.add(largest)
    return sorted((size for size in sizes if 1 <= size < gpus), reverse=True)


def _smaller(
    spec: Mapping[str, object],
    sizes: Sequence[int],
    offer: PoolOffer,
    *,
    tenant: Tenant,
    now: Clocks,
) -> list[Way]:
    """Return the job with fewer GPUs, down to the first size that fits now; at most `WAYS`."""
    ways = []
    # Without its deadline, because the answer to a deadline would decide a whole round for each
    # size.
    plain = {name: value for name, value in spec.items() if name not in DEADLINE_FIELDS}
    for size in sizes:
        run = dry_run_job(tenant=tenant, spec={**plain, "gpus": size}, now=now, looks_ahead=False)
        if run.reason_code != Reason.TOO_LARGE:
            ways.append(_way(size, run, offer))
        if not run.reason_code:
            break  # this size fits, so a smaller one would only run longer
    return [*ways[: WAYS - 1], ways[-1]] if len(ways) > WAYS else ways
