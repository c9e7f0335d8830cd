"""The ASGI application."""

import os

from django.core.asgi import get_asgi_application

from portal.site.memory import give_back_what_is_freed, keep_what_is_loaded
from portal.site.shared_counts import share

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
give_back_what_is_freed()
share()
_django = get_asgi_application()

from portal.site import urls  # noqa: E402, F401 - after Django; no request waits for the pages
from portal.site.checks import refuse_unsafe_serving  # noqa: E402 - they read the settings,
from portal.site.gate import Gate  # noqa: E402 - which Django has now

refuse_unsafe_serving()
application = Gate(_django)
keep_what_is_loaded()
