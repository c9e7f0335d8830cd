"""The table of one-time codes by which people enter interactive jobs."""

from django.conf import settings
from django.db import models

from scheduling.models.jobs import Job


class SessionCode(models.Model):
    """A code that was not used yet. Only its hash is stored, and using it deletes the row."""

    code_hash = models.CharField(max_length=64, primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField(help_text="Wall time.")
