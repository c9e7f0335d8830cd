"""A tenant's choice of the order among its own people."""

from django.db import models

from scheduling.models.cluster import Pool
from tenants.models import Tenant


class EqualPeople(models.Model):
    """The people of this tenant share its places in the pool equally.

    Without a row, the tenant's jobs keep the order of their arrival.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "tenant"], name="equal_people_once"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} in {self.pool_id}"
