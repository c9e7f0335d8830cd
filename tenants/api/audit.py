"""The audit log, for site roles."""

from tenants.api.operate import OperateView
from tenants.api.resources import PAGE, Listed, Page, query
from tenants.audit import AuditRow, audit_page
from tenants.scopes import site_scope


class AuditList(Listed, OperateView):
    """List the changes by site roles, newest first."""

    address = "operate/audit"
    operation = "operate_audit"
    row = AuditRow
    about = "A page of the audit log."
    parameters = (
        query("action", "Prefix of the action, such as quota. or node.drained."),
        query("subject", "A part of the subject, such as pool philly."),
        query("actor", "The login name of the author."),
        *PAGE,
    )
    shows = ("User.username", "AuditRecord.subject", "AuditRecord.request_id")

    def page(self) -> Page:
        limit, before = self.limit, self.before("audit")
        asked = {name: self.param(name) for name in ("action", "subject", "actor")}
        with site_scope():
            rows, more = audit_page(**asked, before_id=before, limit=limit)
        return Page(rows, [more] if more else None)
