"""The result of a dry run: a verdict, its numbers, the price, and smaller alternatives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.domain.reason_texts import LARGER_THAN_POOL
from evenshare_core.domain.reasons import Reason
from portal.charts.figures import credits_text, duration, plural, thousands
from portal.jobs.forms.fields import LABELED, label_of
from portal.jobs.forms.submit import JobForm
from portal.jobs.text.answer import preview_text
from scheduling.engine.clock import Clocks
from scheduling.requests.sweeps import is_sweep
from scheduling.selectors.jobs.reasons import any_of, why, written
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.sweep_jobs import count_jobs
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant, User

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
            # A dry run also counts drained nodes.
            return written(self.run.reason_code, LARGER_THAN_POOL, None).text
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
        unread = _("The YAML cannot be read.")
        return Feasibility("warn", _("YAML errors"), unread, form.beside[0])
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
    jobs = plural(count, "job")
    if at_once is None:
        makes = _("It makes {jobs}.").format(jobs=jobs)
    else:
        makes = _("It makes {jobs}, at most {limit} at once.")
        makes = makes.format(jobs=jobs, limit=thousands(at_once))
    first = _("The answer is for the first job.")
    return f"{makes} {first}"


def _unfinished(form: JobForm) -> Feasibility:
    count = form.wrong
    fields = tuple((f"f-{name}", label_of(name)) for name in LABELED if form.errors[name])
    if form.beside:
        fields += (("yaml", _("YAML")),)
    text = ngettext(
        "{count} field is missing or wrong.", "{count} fields are missing or wrong.", count
    )
    return Feasibility(
        "warn",
        _("Not complete"),
        text.format(count=thousands(count)),
        _("See the fields in red. Nothing was submitted, and your input is kept."),
        fields=fields,
    )


def _verdict(way: Way) -> Feasibility:
    run = way.run
    if not run.feasible:
        sentence = _("It cannot start: {reason}.").format(reason=way.text)
        return Feasibility("bad", _("Not feasible"), sentence, run.detail)
    if run.reason_code:
        sentence = _("It can run, but not now: {reason}.").format(reason=way.text)
        return Feasibility("note", _("Feasible, later"), sentence, run.detail)
    ahead = run.next_round
    if ahead is not None and ahead.preempted.count:
        ended = ahead.preempted.count
        sentence = ngettext(
            "The next round would start it: {count} lease would end to make room.",
            "The next round would start it: {count} leases would end to make room.",
            ended,
        ).format(count=thousands(ended))
        return Feasibility("ok", _("Feasible"), sentence, run.detail)
    return Feasibility("ok", _("Feasible"), _fits_text(run), _decides_text(run))


def _fits_text(run: DryRun) -> str:
    if not run.borrowed:
        text = _("It fits now, on {own}.")
    elif not run.own:
        text = _("It fits now, on {borrowed}.")
    else:
        text = _("It fits now, on {own} and {count} borrowed.")
    return text.format(
        own=plural(run.own, "own GPU"),
        borrowed=plural(run.borrowed, "borrowed GPU"),
        count=thousands(run.borrowed),
    )


def _decides_text(run: DryRun) -> str:
    decides = _("The next round decides; queued jobs may be ahead of it.")
    if run.borrowed:
        cost = _("Borrowed GPUs go back at the end of a term when their owners need them.")
    else:
        cost = _("Within quota: free of charge.")
    return f"{decides} {cost}"


def _price_text(way: Way, offer: PoolOffer) -> str:
    run = way.run
    if way.term_credits is None:
        return ""
    gpus = plural(run.borrowed, "GPU")
    if run.other_types:
        gpus = _("{gpus} of {gpu_type}").format(gpus=gpus, gpu_type=run.gpu_type)
    if len(way.prices) == 1:
        costs = _("Borrowing {gpus} costs {now} credits per GPU-hour as posted now.")
    else:
        costs = _(
            "Borrowing {gpus} costs {low} to {high} credits per GPU-hour: {now} as posted now,"
            " {after} from its first renewal on, because its own GPUs then raise the price, if"
            " nothing else changes."
        )
    texts = [
        costs.format(
            gpus=gpus,
            low=credits_text(way.prices[0]),
            high=credits_text(way.prices[-1]),
            now=credits_text(run.price),
            after=credits_text(run.price_after),
        ),
        _("One lease term of {time} costs at most {amount} credits.").format(
            time=duration(offer.lease_s), amount=credits_text(way.term_credits, 4)
        ),
    ]
    if run.other_types:  # every round tries all accepted types
        text = _("It may start on {gpu_types} instead, at the price there.")
        texts.append(text.format(gpu_types=any_of(run.other_types)))
    return " ".join(texts)


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
