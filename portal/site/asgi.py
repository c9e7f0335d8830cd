"""The web application for an ASGI server."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
_django = get_asgi_application()

from portal.site.gate import Gate  # noqa: E402 - it reads the settings, which Django has now

application = Gate(_django)
