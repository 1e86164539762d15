"""A project that includes the pages, as the documentation says."""

from django.urls import include, path

urlpatterns = [path("cachelab/", include("nearcache.web.urls"))]
