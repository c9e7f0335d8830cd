"""Test the submit page: form and YAML in sync, dry runs, errors, keys, clones, roles, cancels."""

from __future__ import annotations

import html
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.jobs.forms.fields import Draft, draft_of, draft_spec
from portal.jobs.forms.submit import form_of_draft, form_of_text
from scheduling.models import Job, PriceSetting
from scheduling.requests.job_yaml import MOST_BYTES, YamlError, read_yaml, write_yaml
from scheduling.selectors.jobs.requests import job_as_request
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town

NEW = "/t/north/jobs/new/"
ASK = "/t/north/jobs/dry-run/"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
LINES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20).filter(
    lambda text: not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


def form(place: Town, **more: Any) -> dict[str, Any]:
    return {"side": "form", "pool": place.cluster.pool.name, "gpus": "2", **more}


def field(page: str, name: str) -> str:
    found = re.search(rf'<textarea[^>]*name="{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    if found is None:
        found = re.search(rf'<input(?=[^>]*name="{name}")[^>]*value="([^"]*)"', page)
    assert found is not None, name
    return html.unescape(found[1])


def says(page: str) -> str:
    found = re.search(r'<div id="answer-says".*?</h2>.*?</p>', page, re.DOTALL)
    assert found is not None
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).split())


class TestYaml:
    @given(
        st.fixed_dictionaries(
            {"name": TEXT, "gpus": st.integers(1, 10**9)},
            optional={
                "command": st.lists(LINES, min_size=1, max_size=4),
                "environment": st.dictionaries(TEXT, LINES, min_size=1, max_size=3),
                "max_price": st.decimals(0, 999, places=3).map(str),
                "gpu_types": st.lists(TEXT, min_size=1, max_size=3),
            },
        )
    )
    def test_written_spec_reads_back_unchanged(self, spec: dict[str, object]) -> None:
        text, lines = write_yaml(spec)
        read = read_yaml(text)
        given = {name: value if value not in ("", "~", "null") else None
                 for name, value in spec.items()}  # fmt: skip
        assert read.values == given
        assert read.lines == lines

    def test_reads_numbers_exactly_and_strings_as_typed(self) -> None:
        read = read_yaml("gpus: 010\nmax_price: 0.10\ncommand: [run, 1, yes, 2.50]\nname: off\n")
        assert read.values == {
            "gpus": 10,
            "max_price": Decimal("0.10"),
            "command": ["run", "1", "yes", "2.50"],
            "name": "off",
        }

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("a: &x 1\nb: *x", 1, "Anchors"),
            ("gpus: 1\na: !!python/object:os.system x", 2, "Tags"),
            ("%YAML 1.1\n---\na: 1", 1, "%"),
            ("gpus: 1\ngpus: 2", 2, "given twice"),
            ("gpus: 1\n---\ngpus: 2", 2, "second document"),
            ("- 1", 1, "one field per line"),
            ("a: " + "[" * 40, 1, "nested too deep"),
            ("a: [" + "1," * 5000 + "]", 1, "more than 2,000 values"),
            ("gpus: 1\n  x: 2", 2, "not allowed"),
            ("name: 'x", 1, "end of stream"),
            ("name: \x00", 1, "character"),
            ("name: " + "x" * MOST_BYTES, None, "longer than"),
            ("{[]: 1}", 1, "name must be a string"),
        ],
    )
    def test_rejects_unsupported_syntax_with_line(
        self, text: str, line: int | None, words: str
    ) -> None:
        with pytest.raises(YamlError) as caught:
            read_yaml(text)
        assert caught.value.line == line
        assert words in caught.value.text

    @pytest.mark.parametrize("text", ["[" * 100_000, "{" * 100_000, "? " * 50_000, "*" * 100_000])
    def test_rejects_hostile_nesting(self, text: str) -> None:
        with pytest.raises(YamlError):
            read_yaml(text)


class TestForm:
    @given(
        st.lists(LINES, min_size=1, max_size=4),
        st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), LINES, max_size=3),
    )
    def test_form_and_yaml_give_the_same_spec(
        self, command: list[str], env: dict[str, str]
    ) -> None:
        spec = {"pool": "p", "gpus": 3, "command": command, "environment": env}
        said, found = draft_spec(draft_of(spec))
        assert found == []
        assert said == {name: value for name, value in spec.items() if value}

    def test_keeps_unreadable_input_with_errors(self) -> None:
        draft = Draft(pool="p", gpus="many", command="python 'x", environment="SEED\nA=1\nA=2")
        shown = form_of_draft(draft, tenant="t")
        assert shown.draft == draft
        assert shown.spec == {"pool": "p", "gpus": "many", "environment": {"A": "1"}}
        (words,) = shown.errors["command"]
        assert words.startswith("It cannot be split: no closing quotation. Close the quote")
        assert [words[:21] for words in shown.errors["environment"]] == [
            "Line 1 has no =. Ente",
            "Line 3 sets A again. ",
        ]

    def test_is_unchanged_while_yaml_is_invalid(self) -> None:
        before = Draft(pool="p", gpus="3")
        shown = form_of_text("gpus: [", before, tenant="t")
        assert (shown.draft, shown.spec, shown.text) == (before, None, "gpus: [")
        assert shown.beside[0].startswith("Line 1: ")

    def test_rejects_tenant_other_than_that_of_page(self) -> None:
        assert form_of_text("tenant: t\ngpus: 1", Draft(), tenant="t").wrong == 0
        beside = form_of_text("gpus: 1\ntenant: u", Draft(), tenant="t").beside
        assert beside == [
            "Line 2: tenant is another tenant. This page submits for t: remove the line."
        ]


class TestPermissions:
    def test_members_and_managers_can_submit(self, place: Town) -> None:
        assert place.owner.get(NEW).status_code == 200
        assert b"Submit a job" in place.owner.get("/t/north/").content
        assert b"Submit a job" in place.owner.get("/t/north/jobs/").content

    def test_viewers_and_operators_receive_403_with_reason(self, place: Town) -> None:
        for client in (place.mate, place.operator):
            page = client.get(NEW)
            assert page.status_code == 403
            assert b"member" in page.content
            assert client.post(NEW, form(place, act="submit")).status_code == 403
            assert client.post(ASK, form(place)).status_code == 403
            assert b"Submit a job" not in client.get("/t/north/jobs/").content
        assert Job.objects.count() == 0

    def test_other_tenants_receive_404(self, place: Town) -> None:
        for client in (place.neighbour, place.outsider):
            assert client.get(NEW).status_code == 404
            assert client.post(NEW, form(place)).status_code == 404
            assert client.post(ASK, form(place)).status_code == 404
        assert place.nobody.get(NEW).headers["Location"] == f"/login/?next={NEW}"


class TestSubmission:
    def test_form_creates_pending_job_and_redirects_to_it(self, place: Town) -> None:
        sent = form(
            place,
            act="submit",
            command="python train.py --note 'a b'",
            environment="SEED=1\r\nEMPTY=",
            name="run-1",
            max_price="1.5",
            gpu_types=["v100"],
            duration_s="90",
        )
        answer = place.owner.post(NEW, sent)
        job = Job.objects.get()
        assert answer.headers["Location"] == f"/jobs/{job.uid}/"
        assert (job.state, job.gpus, job.name, job.source) == ("pending", 2, "run-1", "web")
        assert job.command == ["python", "train.py", "--note", "a b"]
        assert job.environment == {"SEED": "1", "EMPTY": ""}
        assert (job.max_price, job.gpu_types) == (Decimal("1.5"), ["v100"])
        assert job.virtual_work.duration_us == 90_000_000
        assert job.submitted_by is not None
        assert job.submitted_by.username == "ada"

    def test_yaml_takes_precedence_over_form_fields(self, place: Town) -> None:
        text = f"pool: {place.cluster.pool.name}\r\ngpus: 3\r\nmax_price: 0.25\r\n"
        place.owner.post(NEW, {**form(place, act="submit"), "side": "yaml", "yaml": text})
        job = Job.objects.get()
        assert (job.gpus, job.max_price) == (3, Decimal("0.25"))

    def test_repeated_post_creates_one_job(self, place: Town) -> None:
        key = field(place.owner.get(NEW).content.decode(), "key")
        sent = form(place, act="submit", key=key)
        first, second = place.owner.post(NEW, sent), place.owner.post(NEW, sent)
        assert first.headers["Location"] == second.headers["Location"]
        assert Job.objects.count() == 1

    def test_rejects_used_key_with_other_values(self, place: Town) -> None:
        key = field(place.owner.get(NEW).content.decode(), "key")
        place.owner.post(NEW, form(place, act="submit", key=key))
        again = place.owner.post(NEW, form(place, act="submit", key=key, gpus="3"))
        page = again.content.decode()
        assert again.status_code == 422
        assert "Already submitted" in page
        assert field(page, "gpus") == "3"
        assert field(page, "key") != key
        place.owner.post(NEW, form(place, act="submit", key=field(page, "key"), gpus="3"))
        assert sorted(Job.objects.values_list("gpus", flat=True)) == [2, 3]

    def test_shows_every_error_at_its_field_and_keeps_input(self, place: Town) -> None:
        sent = form(
            place,
            act="submit",
            gpus="two",
            name="Bad Name",
            max_price="-1",
            environment="LD_PRELOAD=x",
            command="python 'x",
            duration_s="0",
        )
        answer = place.owner.post(NEW, sent)
        page = answer.content.decode()
        assert answer.status_code == 422
        wrong = set(re.findall(r'id="err-(\w+)"[^>]*>\s*<p', page))
        assert wrong == {"gpus", "name", "max_price", "environment", "command", "duration_s"}
        assert "LD_PRELOAD may not be set by a job." in page
        for name in ("gpus", "name", "max_price", "environment", "command", "duration_s"):
            assert field(page, name) == sent[name]
        assert Job.objects.count() == 0

    def test_pending_job_limit_keeps_input(self, place: Town, settings: Any) -> None:
        settings.PENDING_JOBS_MAX = 1
        place.submit()
        page = place.owner.post(NEW, form(place, act="submit", name="kept")).content.decode()
        assert "the maximum" in page
        assert field(page, "name") == "kept"

    @pytest.mark.parametrize(
        "sent",
        [
            {},
            {"side": "yaml"},
            {"side": "odd", "pool": "\x00", "gpus": "9" * 300},
            {"side": "yaml", "yaml": "gpus: " + "9" * 5000},
            {"side": "yaml", "yaml": "gpus: 1.5\nodd: {a: [b]}\ncommand: python x"},
            {"side": "form", "gpu_types": ["x"] * 50, "changed": "pool", "use": "1" * 99},
            {"side": "form", "command": "'" * 999, "environment": "=\n=\n=x"},
            {"side": "form", "weight": "x", "key": "short"},
        ],
    )
    def test_malformed_posts_create_no_job(self, place: Town, sent: dict[str, Any]) -> None:
        assert place.owner.post(NEW, {**sent, "act": "submit"}).status_code == 422
        assert place.owner.post(NEW, sent).status_code == 200
        assert place.owner.post(ASK, sent).status_code == 200
        assert Job.objects.count() == 0

    def test_requires_csrf_token(self, place: Town) -> None:
        place.owner.handler.enforce_csrf_checks = True
        for path in (NEW, ASK, f"/jobs/{place.submit().uid}/cancel/"):
            assert place.owner.post(path, form(place)).status_code == 403


class TestDryRunAnswer:
    def test_form_change_updates_yaml(self, place: Town) -> None:
        page = place.owner.post(ASK, form(place, gpus="3", changed="gpus")).content.decode()
        assert "gpus: 3\n" in field(page, "yaml")
        assert re.search(r'<span\s+class="hot"\s*>3</span>', page)
        assert "Line 3 now has the value of" in page
        assert 'id="form-side"' not in page  # the user's input is not replaced
        assert "It fits now, on 3 own GPUs." in says(page)
        assert "a snapshot of this moment, not a reservation" in page.lower()

    def test_yaml_change_updates_form(self, place: Town) -> None:
        text = f"pool: {place.cluster.pool.name}\ngpus: 4\ncommand: [echo, a b]\n"
        page = place.owner.post(ASK, {"side": "yaml", "yaml": text}).content.decode()
        assert (field(page, "gpus"), field(page, "command")) == ("4", "echo 'a b'")
        assert 'id="yaml-side"' not in page

    def test_shows_price_of_borrowed_gpus(self, place: Town) -> None:
        place.submit(4)
        place.submit(4, tenant="south")
        page = place.owner.post(ASK, form(place, gpus="6")).content.decode()
        assert "Borrowing 2 GPUs costs" in says(page)
        assert "One lease term of 15 min costs at most" in says(page)

    @pytest.mark.parametrize(("base", "prices"), [("1", 2), ("0.02", 1)])
    def test_shows_price_range_only_if_rounded_prices_differ(
        self, committed_db: str, base: str, prices: int
    ) -> None:
        assert committed_db
        place = town()
        PriceSetting.objects.update(base=Decimal(base))
        place.submit(3)
        place.play(1)
        page = place.owner.post(ASK, form(place, gpus="2", changed="gpus")).content.decode()
        said = re.search(r"Borrowing 1 GPU costs (.*?) credits per GPU-hour", says(page))
        assert said is not None, says(page)
        shown = said[1].split(" to ")
        assert len(set(shown)) == len(shown) == prices

    @pytest.mark.parametrize("gpus", ["3", "6"])
    def test_fitting_job_is_decided_by_next_round(self, place: Town, gpus: str) -> None:
        page = place.owner.post(ASK, form(place, gpus=gpus)).content.decode()
        assert "It fits now" in says(page)
        assert "The next round decides; queued jobs may be ahead of it." in says(page)
        too_many = place.owner.post(ASK, form(place, gpus="64")).content.decode()
        assert "The next round decides" not in says(too_many)

    def test_offers_fewer_gpus_if_job_cannot_start(self, place: Town) -> None:
        page = place.owner.post(ASK, form(place, gpus="64")).content.decode()
        assert "is more than the pool has" in page or "It cannot start" in says(page)
        assert re.findall(r'name="use" value="(\d+)"', page) == ["8"]
        used = place.owner.post(NEW, form(place, gpus="64", use="8")).content.decode()
        assert field(used, "gpus") == "8"
        assert "gpus: 8\n" in field(used, "yaml")

    def test_creates_no_job(self, place: Town) -> None:
        place.owner.post(ASK, form(place))
        place.owner.post(NEW, form(place))
        assert Job.objects.count() == 0

    def test_escapes_hostile_text(self, place: Town) -> None:
        evil = "</textarea><script>alert(1)</script>"
        for sent in (form(place, name=evil, command=evil), {"side": "yaml", "yaml": evil}):
            for path in (ASK, NEW):
                assert evil not in place.owner.post(path, sent).content.decode()


class TestClone:
    def test_copies_everything_but_id_times_and_name(self, place: Town) -> None:
        sent = form(
            place,
            act="submit",
            command="python x.py 'a b'",
            environment="SEED=1",
            name="run-1",
            gpu_types=["v100"],
            duration_s="90",
            weight="3",
            max_price="1.50",
        )
        place.owner.post(NEW, sent)
        first = Job.objects.get()
        page = place.owner.get(f"{NEW}?from={first.uid}").content.decode()
        names = ("name", "gpus", "command", "environment", "duration_s", "weight", "max_price")
        again = {name: field(page, name) for name in names}
        own = {"max_price": "1.5", "name": "run-1-copy"}
        assert again == {**{name: sent[name] for name in names}, **own}
        place.owner.post(NEW, form(place, **again, act="submit", gpu_types=["v100"]))
        second = Job.objects.exclude(pk=first.pk).get()
        assert job_as_request(second) == {**job_as_request(first), "name": "run-1-copy"}
        assert second.uid != first.uid
        # A clone of the clone and another clone of the original get the next free name.
        for source in (first, second):
            page = place.owner.get(f"{NEW}?from={source.uid}").content.decode()
            assert field(page, "name") == "run-1-copy-2"

    @pytest.mark.parametrize(
        "name",
        ["a" * 63, f"{'a' * 58}-9999", f"{'a' * 51}-copy-999999", "x-1", "0-0-0"],
    )
    def test_name_is_free_and_valid(self, place: Town, name: str) -> None:
        job = place.submit()
        Job.objects.filter(pk=job.pk).update(name=name)
        again = field(place.owner.get(f"{NEW}?from={job.uid}").content.decode(), "name")
        assert again != name
        assert place.owner.post(NEW, form(place, name=again, act="submit")).status_code == 302

    def test_source_must_belong_to_own_tenant(self, place: Town) -> None:
        theirs = place.submit(tenant="south")
        for source in (theirs.uid, "x", "00000000-0000-0000-0000-000000000000"):
            assert place.owner.get(f"{NEW}?from={source}").status_code == 404

    def test_hides_duration_of_trace_jobs(self, place: Town) -> None:
        job = place.submit(duration_s=1234)
        Job.objects.filter(pk=job.pk).update(source="trace")
        assert b"1234" not in place.owner.get(f"{NEW}?from={job.uid}").content


class TestCancellation:
    def test_is_idempotent_for_members_and_operators(self, place: Town) -> None:
        for client in (place.owner, place.operator):
            job = place.submit()
            for _ in range(2):
                answer = client.post(f"/jobs/{job.uid}/cancel/", follow=True)
                assert answer.status_code == 200
            job.refresh_from_db()
            assert job.state == Job.State.CANCELLED

    def test_is_rejected_for_viewers_and_other_tenants(self, place: Town) -> None:
        path = f"/jobs/{place.submit().uid}/cancel/"
        assert place.mate.post(path).status_code == 403
        assert place.neighbour.post(path).status_code == 404
        assert place.outsider.post(path).status_code == 404
        assert place.nobody.post(path).status_code == 302
        assert place.owner.get(path).status_code == 405
        assert not Job.objects.filter(cancel_asked_at__isnull=False).exists()

    def test_updates_heading_and_returns_to_its_section(self, place: Town) -> None:
        job = place.submit()
        answer = place.owner.post(f"/jobs/{job.uid}/cancel/")
        assert answer.headers["Location"] == f"/jobs/{job.uid}/#cancelled"
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert headline(page) == "Cancelled before it ran."
        assert 'id="cancelled"' in page
        running = place.submit()
        Job.objects.filter(pk=running.pk).update(
            state=Job.State.RUNNING, cancel_asked_at=place.cluster.at
        )
        page = place.owner.get(f"/jobs/{running.uid}/").content.decode()
        assert headline(page).startswith("Cancelling: it may save its state")
        assert 'id="cancelled"' in page

    def test_button_is_shown_only_while_cancellable(self, place: Town) -> None:
        job = place.submit()
        path = f"/jobs/{job.uid}/"
        assert b"Cancel the job" in place.owner.get(path).content
        assert b"Cancel the job" not in place.mate.get(path).content
        place.owner.post(f"{path}cancel/")
        assert b"Cancel the job" not in place.owner.get(path).content


class TestJobSpecification:
    def test_is_shown_as_yaml_cli_and_http_request(self, place: Town) -> None:
        job = place.submit(2)
        Job.objects.filter(pk=job.pk).update(command=["echo", "it's"], gpu_types=["v100"])
        page = html.unescape(place.owner.get(f"/jobs/{job.uid}/").content.decode())
        assert 'command: ["echo", "it\'s"]' in page
        assert "evenshare job submit --tenant north" in page
        assert "--gpu-type v100 -- echo 'it'\"'\"'s'" in page
        assert '"gpus": 2' in page
        assert "http://testserver/api/v1/jobs" in page
