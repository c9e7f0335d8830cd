"""A command of the core library, as a `manage.py` command."""

from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.cli.command import CliError, CoreCommand


class LibraryCommand(BaseCommand):
    """Runs `command` with the options and output of `evenshare-core`, and without a database."""

    command: ClassVar[CoreCommand]
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        self.command.add_arguments(parser)

    def handle(self, **options: Any) -> None:
        """Run the command, which writes its own line ends."""
        streams = (self.stdout, self.stderr)
        endings = [stream.ending for stream in streams]
        self.stdout.ending = self.stderr.ending = ""
        try:
            self.command.run(options, self.stdout, self.stderr)
        except CliError as error:
            raise CommandError(str(error)) from error
        finally:
            for stream, ending in zip(streams, endings, strict=True):
                stream.ending = ending
