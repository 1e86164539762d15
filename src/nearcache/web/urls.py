"""``path("cachelab/", include("nearcache.web.urls"))``.

Django's ``path`` matches the whole of a path and nothing else. What is fixed comes first; an
alias of the same name is at ``run/<alias>``, and so is one with a slash in it.
"""

from __future__ import annotations

from django.urls import path

from nearcache.web import views

app_name = "nearcache_web"
urlpatterns = [
    path("", views.index, name="index"),
    path("random", views.run_random, name="random"),
    path("summary", views.summary, name="summary"),
    path("reset", views.reset, name="reset"),
    path("run/random", views.run_random, name="run-random"),
    path("run/<path:alias>", views.run, name="run"),
    path("<str:alias>", views.run, name="alias"),
]
