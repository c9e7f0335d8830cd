"""The submit page: a form and a YAML text for the same specification.

The one that was edited last counts; the other one is updated.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal.common.submit_links import submit_command
from portal.jobs.forms.fields import LABELED, Draft, draft_of, draft_spec, label_of
from scheduling.models import Job
from scheduling.requests.job_yaml import YamlError, read_yaml, write_yaml
from scheduling.selectors.jobs.requests import job_as_request
from tenants.input.errors import FieldError, InvalidInputError

FORM, YAML = "form", "yaml"
_ITEM = re.compile(r"\[([0-9]{1,6})\]\.?(.*)", re.DOTALL)


@dataclass
class JobForm:
    """The form and the YAML text of one specification. `side` is the one that was edited last.

    `spec` is None if that one is unreadable. `errors`: by field of the form; `beside`: all other
    errors. `lines`: field -> YAML line.
    """

    side: str
    draft: Draft
    text: str
    spec: dict[str, object] | None
    lines: dict[str, int] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in LABELED})
    beside: list[str] = field(default_factory=list)
    changed: str = ""

    def add(self, errors: Sequence[FieldError], pools: Sequence[str] = ()) -> None:
        """Add errors to their fields."""
        for error in errors:
            name = error.top_field
            hint = error.hint
            if name == "pool" and pools:
                hint = _("Pools: {pools}.").format(pools=", ".join(pools))
            if name in LABELED:
                message = f"{_subject(error.field, name)} {error.reason}. {hint}"
                self.errors[name].append(message.strip())
            else:
                message = _at_line(self.lines.get(name), f"{error}. {hint}".strip())
                if message not in self.beside:
                    self.beside.append(message)

    def refuse(self, error: InvalidInputError, pools: Sequence[str] = ()) -> None:
        """Add a refusal's errors, except for fields that were unreadable anyway."""
        named = {name for name, errors in self.errors.items() if errors}
        self.add([one for one in error.errors if one.top_field not in named], pools)

    @property
    def wrong(self) -> int:
        return sum(map(len, self.errors.values())) + len(self.beside)

    @property
    def hot(self) -> int | None:
        """Return the YAML line that the form's last edit changed, or None."""
        return self.lines.get(self.changed) if self.side == FORM else None

    @property
    def rows(self) -> range:
        return range(1, max(self.text.count("\n") + (not self.text.endswith("\n")), 1) + 1)

    @property
    def changed_label(self) -> str:
        return label_of(self.changed)


def form_of_draft(draft: Draft, *, tenant: str, changed: str = "") -> JobForm:
    """Return the edited form, and the YAML made from it."""
    spec, errors = draft_spec(draft)
    text, lines = write_yaml({"tenant": tenant, **spec})
    form = JobForm(FORM, draft, text, spec, lines, changed=changed)
    form.add(errors)
    return form


def form_of_text(text: str, before: Draft, *, tenant: str) -> JobForm:
    """Return the edited YAML, and the form made from it.

    If the YAML is unreadable, the form stays as it was.
    """
    try:
        read = read_yaml(text)
    except YamlError as error:
        return JobForm(YAML, before, text, None, beside=[_at_line(error.line, error.text)])
    spec = dict(read.values)
    form = JobForm(YAML, draft_of(spec), text, spec, read.lines)
    named = spec.pop("tenant", None)
    if named not in (None, tenant):
        hint = _("This page submits for {tenant}: remove the line.").format(tenant=tenant)
        form.add([FieldError("tenant", _("is another tenant"), hint)])
    return form


def submit_call(spec: Mapping[str, Any], url: str) -> str:
    """Return the HTTP call that submits a specification."""
    body = json.dumps(spec, ensure_ascii=False)
    # Double quotes, so that the shell inserts the token.
    bearer = '-H "Authorization: Bearer $EVENSHARE_TOKEN"'
    kind = "-H 'Content-Type: application/json'"
    return f"curl -sS {bearer} {kind} -d {shlex.quote(body)} {shlex.quote(url)}"


def spec_context(job: Job, url: str) -> dict[str, str]:
    """Return the data of templates/jobs/_job_spec.html: three ways to submit the job again."""
    spec = {"tenant": job.tenant.slug, **job_as_request(job)}
    text = write_yaml(spec)[0]
    return {
        "spec_yaml": text,
        # The command line needs a job's command; a simulated job may have none.
        "spec_cli": submit_command(spec) if spec.get("command") else "",
        "spec_curl": submit_call(spec, url),
    }


def _at_line(line: int | None, message: str) -> str:
    if not line:
        return message
    return _("Line {number}: {message}").format(number=line, message=message)


def _subject(place: str, name: str) -> str:
    """Return the start of an error message: "Item 3" of a list, a variable's name, or "It"."""
    rest = place.removeprefix(name)
    item = _ITEM.fullmatch(rest)
    if item is None:
        return rest.lstrip(".") or pgettext("field", "It")
    text = _("Item {number}, {name},") if item[2] else _("Item {number}")
    return text.format(number=int(item[1]) + 1, name=item[2])
