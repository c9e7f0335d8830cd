"""`manage.py decide`: decide a round by any policy from a stored snapshot, without a database."""

from evenshare_core.cli.decide import DECIDE
from scheduling.management.core_command import LibraryCommand


class Command(LibraryCommand):
    command = DECIDE
    help = DECIDE.help
