"""Shapes of rounds and of trades as the API answers them, for the schema, as
`scheduling.api.schemas`."""

from __future__ import annotations

from rest_framework import serializers as s

from scheduling.api.schemas import TenantRef
from scheduling.api.speeds import SPEED
from scheduling.selectors.trades import TradeRow
from tenants.api.answer_schemas import answer_serializer

TRADE = answer_serializer(TradeRow)


class RoundRow(s.Serializer[object]):
    """One round as a list shows it."""

    pool = s.CharField()
    number = s.IntegerField()
    at = s.DateTimeField()
    wall_at = s.DateTimeField()
    policy = s.CharField()
    policy_version = s.CharField()
    snapshot_sha256 = s.CharField()
    decision_sha256 = s.CharField()
    decide_us = s.IntegerField()
    summary = s.DictField(child=s.JSONField())


class RoundPage(s.Serializer[object]):
    """A page of rounds."""

    results = RoundRow(many=True)
    next = s.CharField(allow_null=True)


class ShareRow(s.Serializer[object]):
    """One tenant's round for one GPU type; GPU-time in seconds since accounting began."""

    tenant = TenantRef(allow_null=True)
    gpu_type = s.CharField()
    quota = s.IntegerField()
    swapped = s.IntegerField(help_text="GPUs that trades add to the quota; below 0: fewer.")
    demand = s.IntegerField()
    own = s.IntegerField()
    borrowed = s.IntegerField()
    received_gpu_s = s.IntegerField()
    deserved_gpu_s = s.IntegerField()
    rho_before = s.FloatField(allow_null=True)
    rho_after = s.FloatField(allow_null=True)


class CertificateLine(s.Serializer[object]):
    """A property of a round: whether it holds, and the numbers that the caller may see.

    Of misreports: `of` so many were `checked`, the best found says `factor` times the speed on
    `gpu_type`, or on all but the slowest where that is blank. `bound`: by what it is known that
    none gains.
    """

    property = s.CharField()
    verdict = s.CharField()
    basis = s.CharField()
    checked = s.IntegerField()
    count = s.IntegerField()
    worst = s.FloatField(allow_null=True)
    worst_in_gpus = s.FloatField(allow_null=True)
    total = s.FloatField(allow_null=True)
    tenant = TenantRef(allow_null=True)
    other = TenantRef(allow_null=True)
    hidden = s.BooleanField()
    why = s.CharField(allow_blank=True)
    of = s.IntegerField()
    gpu_type = s.CharField(allow_blank=True)
    factor = s.FloatField(allow_null=True)
    bound = s.CharField(allow_blank=True)


class CertificateRow(s.Serializer[object]):
    """What one job type of a tenant does with its share, in GPUs of the slowest type."""

    tenant = TenantRef()
    job_type = s.CharField(allow_blank=True)
    weight = s.FloatField()
    ideal = s.FloatField(allow_null=True)
    held = s.FloatField()
    alone = s.FloatField()
    best_other = s.FloatField(allow_null=True)
    other = TenantRef(allow_null=True)
    has_all = s.BooleanField()


class CertificateOverclaim(s.Serializer[object]):
    """A job type that was declared faster on a GPU type than measured, times one speed of both.

    `excess`: by which part; more than the spreads of the reports explain.
    """

    tenant = TenantRef()
    job_type = s.CharField(allow_blank=True)
    gpu_type = s.CharField()
    declared = s.RegexField(SPEED)
    measured = s.RegexField(SPEED)
    excess = s.RegexField(SPEED)
    reports = s.IntegerField()


class CertificateWhole(s.Serializer[object]):
    """What was measured when the round was decided; `same_again` while its bytes are kept."""

    version = s.IntegerField()
    failure = s.CharField(allow_blank=True)
    same_again = s.BooleanField(allow_null=True)
    lines = CertificateLine(many=True)
    rows = CertificateRow(many=True)
    rows_hidden = s.IntegerField()
    overclaims = CertificateOverclaim(many=True)
    overclaims_hidden = s.IntegerField()


class RoundDamage(s.Serializer[object]):
    """A part of a stored round that is not what was written; hashes are "" where there is none."""

    part = s.ChoiceField(choices=("row", "snapshot", "decision", "state"))
    why = s.CharField()
    expected_sha256 = s.CharField(allow_blank=True)
    actual_sha256 = s.CharField(allow_blank=True)


class RoundFollowing(s.Serializer[object]):
    """Whether a round begins with what round `round` left, 0: with nothing, as the first one.

    `follows` is null where that cannot be told any more. `why` says why not, in full to operators.
    """

    round = s.IntegerField()
    follows = s.BooleanField(allow_null=True)
    why = s.ListField(child=s.CharField())


class RoundRecordRow(s.Serializer[object]):
    """A round's record in the log of its pool; `sha256` is its leaf hash."""

    index = s.IntegerField()
    sha256 = s.CharField()
    bundle_sha256 = s.CharField(allow_blank=True)
    follows = s.BooleanField(allow_null=True, help_text="Null: nothing to compare with.")
    breaks = s.ListField(child=s.CharField())
    damage = s.CharField(allow_blank=True)


class RoundWhole(RoundRow):
    """One round with its shares and certificate and, while its bytes are kept, its decision.

    Where `damages` names the row, counts are 0 and shares and certificate are not given.
    """

    shares = ShareRow(many=True)
    certificate = CertificateWhole(allow_null=True)
    decision = s.DictField(child=s.JSONField(), allow_null=True)
    why_no_decision = s.CharField(allow_blank=True)
    damages = RoundDamage(many=True)
    trades = TRADE(many=True)
    following = RoundFollowing(allow_null=True)
    bundle = s.CharField(allow_null=True, help_text="Null: not sealed, damaged, or long ago.")
    record = RoundRecordRow(allow_null=True)
