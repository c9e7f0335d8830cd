"""Test that tests run as the application's role, on databases that the owner role migrated."""

import threading

import pytest
from django.db import DatabaseError, connection, transaction


def current_role() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db
class TestAppRole:
    def test_is_connection_role_of_tests(self) -> None:
        assert current_role() == "evenshare_app"

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE mine (id int)",
            "ALTER TABLE django_session ADD COLUMN more int",
            "DROP TABLE django_session",
            "TRUNCATE django_session",
            "CREATE EXTENSION btree_gist",
            "SET ROLE evenshare_owner",
        ],
    )
    def test_cannot_change_schema(self, statement: str) -> None:
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)

    def test_is_not_superuser_and_obeys_row_security(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT rolsuper, rolbypassrls, rolcreatedb, rolcreaterole FROM pg_roles"
                " WHERE rolname = current_user"
            )
            assert cursor.fetchone() == (False, False, False, False)

    def test_owns_nothing(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT relname FROM pg_class WHERE relowner = current_user::regrole")
            assert cursor.fetchall() == []

    def test_can_write_rows(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO django_session VALUES ('k', 'v', now())")
            cursor.execute("SELECT session_data FROM django_session")
            assert cursor.fetchall() == [("v",)]


class TestCommittedDatabase:
    def test_is_visible_to_other_connections(self, committed_db: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO django_session VALUES ('k', 'v', now())")
        seen: list[tuple[str, str]] = []

        def look() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_database(), session_key FROM django_session")
                seen.extend(cursor.fetchall())
            connection.close()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [(committed_db, "k")]

    def test_starts_empty_each_time(self, committed_db: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_session")
            assert cursor.fetchone() == (0,)
