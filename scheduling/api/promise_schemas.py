"""The shape of what a pool promises of quotas, for the API's description."""

from __future__ import annotations

from rest_framework import serializers as s

from evenshare_core.policies.quota_promise import QuotaPromiseKind


class WaitPartRow(s.Serializer[object]):
    """A part of the longest wait for GPUs within quota."""

    text = s.CharField()
    length_s = s.IntegerField()


class QuotaPromiseRow(s.Serializer[object]):
    """What a tenant may expect of its quota. Lengths are pool time; `within_s` is their sum.

    `conditions`: what must be so for the guarantee to hold.
    """

    kind = s.ChoiceField([kind.value for kind in QuotaPromiseKind])
    within_s = s.IntegerField(allow_null=True)
    parts = WaitPartRow(many=True)
    text = s.CharField()
    conditions = s.ListField(child=s.CharField())
