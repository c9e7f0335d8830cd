"""Add messages of decided requests for quota."""

from django.db import migrations, models

from tenants.shapes import hold_condition

KINDS = (
    ("job_started", "job started"),
    ("job_ended", "job finished or was cancelled"),
    ("job_failed", "job failed"),
    ("job_preempted", "job was preempted or lost its node"),
    ("job_not_renewed", "job's lease ended and the job waits again"),
    ("job_idle", "job's GPUs are idle"),
    ("start_promised", "start was promised, or a promise was not kept"),
    ("deadline_moved", "answer to a deadline changed"),
    ("offer_revoked", "offer of idle quota was revoked"),
    ("quota_decided", "request for quota was decided"),
    ("budget_reached", "budget is 80 % or 100 % used"),
    ("test", "test message"),
    ("confirm", "address to confirm"),
)


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0061_policy_histories"),)

    operations = (
        migrations.AlterField("message", "kind", models.CharField(choices=KINDS, max_length=31)),
        hold_condition(
            "scheduling_message", "kind_known", f"kind IN {tuple(name for name, _ in KINDS)}"
        ),
    )
