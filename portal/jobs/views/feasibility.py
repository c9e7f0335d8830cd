"""The answer to "would it run": a verdict, its numbers, the price, and smaller ways to run it."""

from __future__ import annotations

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
from scheduling.selectors.jobs.reasons import any_of, why
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services import DryRun, dry_run_job
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant

DECIDES = "The next round decides; queued jobs may be ahead of it."
HOUR_S = 3600
WAYS = 3
DEADLINE_FIELDS = ("job_class", "deadline", "deadline_steps")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run it. `term_credits`: what one lease term costs at most; None: nothing.

    `prices`: credits a borrowed GPU-hour costs, from the lowest to the highest: as posted, and
    once the job's own GPUs are in use.
    """

    gpus: int
    run: DryRun
    term_credits: Decimal | None
    as_written: bool = False

    @property
    def prices(self) -> tuple[Decimal, ...]:
        """One price, or the lowest and the highest where they print differently."""
        low, high = sorted((self.run.price, self.run.price_after))
        return (low,) if credits_text(low) == credits_text(high) else (low, high)

    @property
    def text(self) -> str:
        """What binds, short."""
        if self.run.reason_code == Reason.TOO_LARGE:
            return LARGER_THAN_POOL.text  # a dry run counts what is drained, too
        return why(self.run.reason_code).text if self.run.reason_code else ""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """What the panel says. `kind` is the state's shape; `ways` begins with the one as written.

    `never`: why it cannot be submitted, as its reason reads; empty: it can. `deadline_text`: what
    the next round would answer to its deadline; empty: it has none.
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


def answer_feasibility(
    form: JobForm,
    offer: PoolOffer | None,
    *,
    tenant: Tenant,
    now: Clocks,
    pools: Sequence[str] = (),
    free: int = 0,
) -> Feasibility:
    """Return the answer to a form; what is wrong with its fields is noted beside them.

    `pools`: the names that the tenant may choose from; `free`: GPUs of one type that nobody holds.
    """
    if form.spec is None:
        return Feasibility("warn", "YAML errors", "The YAML cannot be read.", form.beside[0])
    run = None
    try:
        run = dry_run_job(tenant=tenant, spec=form.spec, now=now)
    except InvalidInputError as error:
        form.refuse(error, pools)
    if run is None or offer is None:
        return _unfinished(form)
    # A job larger than the pool is an answer with ways out of it, more than a wrong field.
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
    )


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
    if others:  # it is tried on each of them in every round
        text += f" It may start on {any_of(others)} instead, at the price there."
    return text


def _way(gpus: int, run: DryRun, offer: PoolOffer, *, as_written: bool = False) -> Way:
    cost = None
    if run.borrowed:
        exact = max(run.price, run.price_after) * run.borrowed * offer.lease_s / HOUR_S
        cost = exact.quantize(Decimal("0.0001"), ROUND_CEILING)
    return Way(gpus, run, cost, as_written)


def most_gpus(spec: Mapping[str, object], offer: PoolOffer) -> int:
    """GPUs of the pool's largest type that the job accepts; it accepts all where it names none."""
    named = spec.get("gpu_types")
    accepted = set(named) if isinstance(named, list | tuple) and named else set(offer.gpus)
    return max((gpus for name, gpus in offer.gpus.items() if name in accepted), default=0)


def _sizes(gpus: int, free: int, largest: int) -> list[int]:
    """Fewer GPUs that may be another answer, most first: halves, what is free, what there is."""
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
    """The same job with fewer GPUs, down to the first that fits now; at most `WAYS`."""
    ways = []
    # The next round is not asked what it would do with them: each answer decides a round.
    plain = {name: value for name, value in spec.items() if name not in DEADLINE_FIELDS}
    for size in sizes:
        run = dry_run_job(tenant=tenant, spec={**plain, "gpus": size}, now=now, looks_ahead=False)
        if run.reason_code != Reason.TOO_LARGE:
            ways.append(_way(size, run, offer))
        if not run.reason_code:
            break  # still fewer GPUs would only take longer
    return [*ways[: WAYS - 1], ways[-1]] if len(ways) > WAYS else ways
