"""Settings for Django's own tests, with the codec options that the environment holds."""

import json
import os

from tests.django.suite_settings import *  # noqa: F403
from tests.django.suite_settings import CACHES

CACHES["default"]["OPTIONS"] = json.loads(os.environ["NEARCACHE_TEST_OPTIONS"])
