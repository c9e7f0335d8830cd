"""Tell PostgreSQL's own programs the address that a variable names, by their environment.

`eval "$(python -m deploy.address OWNER_DATABASE_URL)"`: an address in an argument list would
show its password to everybody on the machine.
"""

import shlex
import sys
from urllib.parse import parse_qsl, urlsplit

from portal.site.environment import SettingError, database, text

# What libpq calls the parts of an address; an option that is not here would be lost.
PARTS = {"HOST": "PGHOST", "PORT": "PGPORT", "USER": "PGUSER", "PASSWORD": "PGPASSWORD"}
OPTIONS = {
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}


def exports(variable: str) -> dict[str, str]:
    """The environment of libpq for the address in a variable.

    Raises:
        SettingError: when it is missing, no address, or has an option that is not passed on.
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
    """Print it for a shell; what an earlier address has set is unset."""
    try:
        variables = exports(variable)
    except SettingError as error:
        sys.exit(f"refused: {error}")
    print("unset", *sorted([*PARTS.values(), *OPTIONS.values()]))
    for name, value in sorted(variables.items()):
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main(sys.argv[1])
