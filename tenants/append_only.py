"""Append-only tables, for migrations: triggers refuse changes, and each row has a seal.

The application's database role may not change rows either, unless it owns the tables. Source:
docs/adr/0132-partitions-have-no-rights.md.
"""

from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_GUARD = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_seal_table('{table}');
"""


def append_only(*tables: str) -> migrations.RunPython:
    """Make tables append-only; their columns exist already."""

    def guard(_: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        for table in tables:
            editor.execute(_GUARD.format(table=table), None)
            _revoke_change(editor, table)

    return migrations.RunPython(guard)


def revoke_change(*tables: str, but: str = "") -> migrations.RunPython:
    """Revoke the right to change rows, except for the columns in `but`."""

    def revoke(_: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        for table in tables:
            _revoke_change(editor, table, but)

    return migrations.RunPython(revoke)


def _revoke_change(editor: BaseDatabaseSchemaEditor, table: str, but: str = "") -> None:
    with editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [settings.APP_DB_ROLE])
        if cursor.fetchone() == (True,):
            return
        role = editor.quote_name(settings.APP_DB_ROLE)
        cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {role}")
        if but:
            cursor.execute(f"GRANT UPDATE ({but}) ON {table} TO {role}")
