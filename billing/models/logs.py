"""Transfers in the logs of their books, and the salts of their digests."""

from django.db import models
from django.db.models import Q

from billing.models.books import Book, Transfer


class LoggedTransfer(models.Model):
    """A transfer's place in its book's log: `number`, counted from 0. Append-only.

    The log has a digest over the transfer and `salt`, 32 random bytes, so that readers cannot try
    out amounts.
    """

    transfer = models.OneToOneField(Transfer, on_delete=models.PROTECT, related_name="logged")
    book = models.ForeignKey(Book, on_delete=models.PROTECT, related_name="+")
    number = models.BigIntegerField()
    salt = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["book", "number"], name="logged_transfer_once"),
            models.CheckConstraint(condition=Q(number__gte=0), name="logged_transfer_from_0"),
        ]
