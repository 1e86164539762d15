"""``@locked``: ``from nearcache import locked``, or ``from nearcache.locked import locked``.

It is :func:`nearcache.django_cache.locked.locked`. The module can be called as the function that it
is named for, as an import of either kind binds the name ``nearcache.locked`` to the module.
"""

import sys
from types import ModuleType

from nearcache.django_cache.locked import current_lock, locked

__all__ = ["current_lock", "locked"]


class _Callable(ModuleType):
    __call__ = staticmethod(locked)


sys.modules[__name__].__class__ = _Callable
