"""Print a database address as the environment variables that PostgreSQL's programs read.

Use `eval "$(python -m deploy.address OWNER_DATABASE_URL)"`: an address in a command's arguments
would show its password to every user of the machine.
"""

import shlex
import sys
from urllib.parse import parse_qsl, urlsplit

from portal.site.environment import SettingError, database, text

# libpq's variable for each part of an address. Other options of an address are refused.
PARTS = {"HOST": "PGHOST", "PORT": "PGPORT", "USER": "PGUSER", "PASSWORD": "PGPASSWORD"}
OPTIONS = {
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}


def exports(variable: str) -> dict[str, str]:
    """Return libpq's environment for the address in a variable.

    Raises:
        SettingError: the variable is missing, is no address, or has an unknown option.
    """
    url = text(variable)
    parts = database(variable, url)
    options = dict(parse_qsl(urlsplit(url).query))
    options.pop("host", None)
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise SettingError(f"{variable} has the option {unknown[0]}, which is not passed on")
    variables = {name: str(parts[part]) for part, name in PARTS.items() if parts[part]}
    variables |= {OPTIONS[name]: value for name, value in options.items()}
    return variables | {"PGDATABASE": str(parts["NAME"])}


def main(variable: str) -> None:
    """Print commands for a shell that set the variables, and unset those of an earlier address."""
    try:
        variables = exports(variable)
    except SettingError as error:
        sys.exit(f"refused: {error}")
    print("unset", *sorted([*PARTS.values(), *OPTIONS.values()]))
    for name, value in sorted(variables.items()):
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main(sys.argv[1])
