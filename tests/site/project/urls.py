"""Where the views are; most twice, once for tasks."""

from __future__ import annotations

from django.urls import path

from tests.site.project import views

urlpatterns = [
    path("me", views.me),
    path("async/me", views.ame),
    path("login", views.login),
    path("page/<key>", views.page),
    path("fragment/<key>", views.fragment),
    path("flown/<whose>/<key>", views.flown),
    path("async/flown/<whose>/<key>", views.aflown),
    path("memo/<whose>/<key>", views.memo),
    path("async/memo/<whose>/<key>", views.amemo),
    path("own/<key>", views.own),
    path("async/own/<key>", views.aown),
    path("many", views.many),
    path("async/many", views.amany),
    path("count/<key>", views.count),
    path("async/count/<key>", views.acount),
    path("lock/<key>", views.lock),
    path("async/lock/<key>", views.alock),
    path("hang/<inside>", views.hang),
    path("stats", views.stats),
    path("layout", views.layout),
]
handler400 = "tests.site.project.views.refused"
handler500 = "tests.site.project.views.failed"
