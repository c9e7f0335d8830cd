"""Django's command line, and `up`, which starts the whole portal."""

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # The supervisor needs no Django: without it, it starts a second earlier, stays
        # small, and can make the database that the settings will name.
        from portal.embedded.supervisor import main as up

        sys.exit(up(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
