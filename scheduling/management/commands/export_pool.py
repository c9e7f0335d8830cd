"""`manage.py export_pool POOL --to DIR`: export a live pool to files that `simulate` reads."""

import shlex
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.services.pool_export import FILE_OPTIONS, PoolExportError, export_pool


class Command(BaseCommand):
    """Write the files, and print the command that simulates them."""

    help = "Export a pool's jobs, nodes, quotas, prices and profiles as files for simulate."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", help="its name")
        parser.add_argument(
            "--to", required=True, metavar="DIR", help="a folder; created if missing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write all files, and return the command that repeats the pool's rounds."""
        folder = Path(options["to"])
        try:
            export = export_pool(options["pool"])
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in export.files.items():
                (folder / name).write_text(text, encoding="utf-8")
        except PoolExportError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        for remark in export.remarks:
            self.stderr.write(remark)
        command = ["evenshare-core", "simulate"]
        for name in export.files:
            command += [FILE_OPTIONS[name], str(folder / name)]
        self.stdout.write(shlex.join([*command, *export.options]))
