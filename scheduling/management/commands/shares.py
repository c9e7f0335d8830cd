"""`manage.py shares`: compute shares of GPUs of several types under a rule, without a database."""

from evenshare_core.cli.shares import SHARES
from scheduling.management.core_command import LibraryCommand


class Command(LibraryCommand):
    command = SHARES
    help = SHARES.help
