"""Test a PostgreSQL that runs but does not answer: probes report it while it is frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduling.models import PoolClock
from tenants.models import User
from tests.factories import cluster
from tests.functional.test_overload import session_of
from tests.plugin import Services
from tests.tools import eventually, stopped
from tests.web_server import read_answer, request, web_server


@contextmanager
def frozen(services: Services) -> Iterator[None]:
    """Pause every process of the server, so that its own timeouts have no effect."""
    with stopped(processes(services)):
        yield


def processes(services: Services) -> list[int]:
    """Return the server's process, then its children; a paused server starts no more of them."""
    server = int((services.postgres.cluster / "postmaster.pid").read_text().split()[0])
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [server, *(int(entry.name) for entry in entries if parent(entry) == server)]


def parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class TestFrozenDatabase:
    def test_readyz_fails_while_database_is_frozen(
        self, committed_db: str, services: Services
    ) -> None:
        """The first probe hangs on its open connection, and the next probe waits for the first."""
        assert committed_db
        cluster({"a": 1})
        PoolClock.objects.update(paused=True)
        User.objects.create_user("otto", site_role="operator")
        session = session_of("otto")
        with web_server() as web:
            assert web.ask("GET", "/readyz").status == 200
            with frozen(services):
                for _ in range(2):
                    answer = web.ask("GET", "/readyz")
                    assert (answer.status, '"failing"' in answer.body) == (503, True)
                assert web.ask("GET", "/healthz").status == 200
                assert web.ask("GET", "/static/js/none.js").status == 404
                page = web.open(request("GET", "/ledger/", Cookie=session))
            # The waiting requests are answered now, and leave no open connection.
            assert read_answer(page).status == 200
            page.close()
            eventually(lambda: web.ask("GET", "/readyz").status == 200)
