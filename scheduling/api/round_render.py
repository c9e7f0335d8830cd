"""Rounds as JSON: what was decided, and its certificate."""

from __future__ import annotations

from typing import Any

from scheduling.api.answers import answer_json
from scheduling.api.speeds import milli_text
from scheduling.models import Round
from scheduling.selectors.bundles import ChainPlace
from scheduling.selectors.certificates import CertificateView
from scheduling.selectors.reasons import preemption_text, visible_numbers
from scheduling.selectors.round_answers import RoundAnswer
from scheduling.selectors.round_shares import RoundShare
from scheduling.selectors.rounds import EndRow, RoundView, SkipGroup
from tenants.answers import credits_text, plain, time_text


def round_json(row: Round, pool: str) -> dict[str, Any]:
    """Return a round as a list shows it; the hashes let anybody check a stored decision."""
    return {
        "pool": pool,
        "number": row.number,
        "at": time_text(row.at),
        "wall_at": time_text(row.wall_at),
        "policy": row.policy,
        "policy_version": row.policy_version,
        "snapshot_sha256": row.snapshot_sha256,
        "decision_sha256": row.decision_sha256,
        "decide_us": row.decide_us,
        "summary": row.summary,
    }


def round_view_json(view: RoundView, seen: CertificateView | None, pool: str) -> dict[str, Any]:
    """Return one round, with its certificate, as its viewer may see it."""
    decision = view.decision
    return {
        **round_json(view.round, pool),
        "shares": [_share(row) for row in view.shares],
        "certificate": _certificate(seen, decision.again if decision else None),
        "decision": None if decision is None else {
            "counts": decision.counts,
            "preemptions": [_early(row) for row in decision.ends if row.early],
            "skips": [_skips(group) for group in decision.skips],
            "answers": {
                "counts": {kind.value: count for kind, count in decision.answers.counts.items()},
                "jobs_with_deadlines": decision.answers.dated,
                "rows": [_answer(row) for row in decision.answers.rows],
                "rows_hidden": decision.answers.hidden,
            },
            "prices": [
                {
                    "gpu_type": row.gpu_type,
                    "valid": credits_text(row.valid),
                    "posted": credits_text(row.posted),
                    "used": row.used,
                    "capacity": row.capacity,
                }
                for row in decision.prices
            ],
        },
        "why_no_decision": view.why_not,
        "damages": [
            {
                "part": damage.part,
                "why": damage.why,
                "expected_sha256": damage.expected,
                "actual_sha256": damage.actual,
            }
            for damage in view.damages
        ],
        "trades": plain(view.trades),
        "following": None if view.following is None else {
            "round": view.following.before,
            "follows": view.following.follows,
            "why": list(view.following.why),
        },
    }  # fmt: skip


def chain_json(place: ChainPlace | None, pool: str) -> dict[str, Any]:
    """Return where a round stands in its pool's log, and where its bundle is while it is kept."""
    if place is None:
        return {"bundle": None, "record": None}
    record = place.record
    return {
        "bundle": f"/api/v1/rounds/{pool}/{record.round}/bundle" if place.is_kept else None,
        "record": {
            "index": place.index,
            "sha256": place.hash,
            "bundle_sha256": record.bundle,
            "follows": place.follows,
            "breaks": list(record.breaks),
            "damage": record.damage,
        },
    }


def _certificate(seen: CertificateView | None, again: bool | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    return {
        "version": seen.version,
        "failure": seen.failure,
        "same_again": again,
        "lines": [
            {
                "property": row.name.value,
                "verdict": row.verdict.value,
                "basis": row.basis.value,
                "checked": row.checked,
                "count": row.count,
                "worst": row.worst,
                "worst_in_gpus": row.in_gpus,
                "total": row.total,
                "tenant": plain(row.tenant),
                "other": plain(row.other),
                "hidden": row.hidden,
                "why": row.why,
                "of": row.of,
                "gpu_type": row.gpu_type,
                "factor": row.factor,
                "bound": row.bound,
            }
            for row in seen.findings
        ],
        "rows": [
            {
                "tenant": plain(row.tenant),
                "job_type": row.profile,
                "weight": row.weight,
                "ideal": row.ideal,
                "held": row.held,
                "alone": row.alone,
                "best_other": row.best_other,
                "other": plain(row.other),
                "has_all": row.capped,
            }
            for row in seen.rows
        ],
        "rows_hidden": seen.rows_hidden,
        "overclaims": [
            {
                "tenant": plain(row.tenant),
                "job_type": row.profile,
                "gpu_type": row.gpu_type,
                "declared": milli_text(row.declared_milli),
                "measured": milli_text(row.measured_milli),
                "excess": milli_text(row.excess_milli),
                "reports": row.reports,
            }
            for row in seen.overclaims
        ],
        "overclaims_hidden": seen.overclaims_hidden,
    }


def _answer(row: RoundAnswer) -> dict[str, Any]:
    """An answer; of another's job `job` is null, and so is what is its tenant's own affair."""
    return {
        "kind": row.kind.value,
        "tenant": plain(row.tenant),
        "job": plain(row.job),
        **answer_json(row.answer),
    }


def _share(row: RoundShare) -> dict[str, Any]:
    return {
        "tenant": plain(row.tenant),
        "gpu_type": row.gpu_type,
        "quota": row.quota,
        "swapped": row.swapped,
        "demand": row.demand,
        "own": row.own,
        "borrowed": row.borrowed,
        "received_gpu_s": row.alloc_gpu_s,
        "deserved_gpu_s": row.fair_gpu_s,
        "rho_before": row.rho_before,
        "rho_after": row.rho_after,
    }


def _early(row: EndRow) -> dict[str, Any]:
    """A lease that the round ended before its expiry, as `PreemptionRow` has it later."""
    early = row.early
    return {} if early is None else {
        "rule": early.rule,
        "words": preemption_text(early.rule, early.tenant.name if early.tenant else ""),
        "moved": row.moved,
        "gpus": row.gpus,
        "gpu_type": row.gpu_type,
        "tenant": plain(row.tenant),
        "job": plain(row.job),
        "for_tenant": plain(early.tenant),
        "for_job": plain(early.job),
        "numbers": visible_numbers(early.numbers),
        "superseded": row.lost,
    }  # fmt: skip


def _skips(group: SkipGroup) -> dict[str, Any]:
    return {
        "reason_code": group.reason.value,
        "jobs": group.jobs,
        "gpus": group.gpus,
        "tenants": [
            {
                "tenant": plain(row.tenant),
                "jobs": row.jobs,
                "gpus": row.gpus,
                "numbers": visible_numbers(row.numbers),
                "named": plain(row.named),
            }
            for row in group.rows
        ],
    }
