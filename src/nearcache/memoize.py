"""``@memoize``: ``from nearcache import memoize``, or ``from nearcache.memoize import memoize``.

It is :func:`nearcache.django_cache.memoize.memoize`. The module can be called as the function that
it is named for, as an import of either kind binds the name ``nearcache.memoize`` to the module.
"""

import sys
from types import ModuleType

from nearcache.django_cache.memoize import Memoized, memoize

__all__ = ["Memoized", "memoize"]


class _Callable(ModuleType):
    __call__ = staticmethod(memoize)


sys.modules[__name__].__class__ = _Callable
