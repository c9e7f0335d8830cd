"""`manage.py simulate`: run a trace under policies on a simulated pool, without a database."""

from evenshare_core.cli.simulate import SIMULATE
from scheduling.management.core_command import LibraryCommand


class Command(LibraryCommand):
    command = SIMULATE
    help = SIMULATE.help
