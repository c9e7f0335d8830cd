"""Test that PostgreSQL never runs as root, and runs as `nobody` if namespaces are forbidden."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from portal.embedded import folders
from portal.embedded.postgres import APP_ROLE, Postgres
from tests.tools import PATIENCE_S, eventually


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
class TestUserNobody:
    def test_runs_database_where_root_cannot(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        place = folders.Folders(tmp_path, tmp_path / "run")
        postgres = Postgres(place, durable=False, nobody=True)
        try:
            postgres.prepare()
            server = subprocess.Popen(  # type: ignore[call-overload]  # user and group
                postgres.command,
                cwd=postgres.identity.home,
                stderr=subprocess.DEVNULL,
                **postgres.identity.popen,
            )
            try:
                eventually(postgres.ready)
                postgres.ensure_roles_and_database()
                with psycopg.connect(postgres.url(APP_ROLE)) as connection:
                    row = connection.execute("SELECT current_user").fetchone()
                assert row == (APP_ROLE,)
            finally:
                server.send_signal(signal.SIGQUIT)
                server.wait(PATIENCE_S)
        finally:
            shutil.rmtree(postgres.identity.home.parent, ignore_errors=True)
