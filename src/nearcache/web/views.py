"""The routes of the articles: a hit times a read, ``/summary`` shows what came of them all."""

from __future__ import annotations

import json
from difflib import get_close_matches

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirectBase
from django.utils.cache import patch_vary_headers
from django.views.decorators.csrf import csrf_exempt

from nearcache.web.access import entrance, text
from nearcache.web.bench import bench, dice
from nearcache.web.pages import index_page, summary_fragment, summary_page
from nearcache.web.summary import as_json, summarize
from nearcache.web.text import as_text

STATUS = {"done": 200, "missed": 200, "failed": 503, "wrong": 500}


class SeeOther(HttpResponseRedirectBase):
    status_code = 303


@entrance("GET")
def index(request: HttpRequest) -> HttpResponse:
    aliases = bench().aliases
    if _wants_html(request):
        return index_page(request, aliases)
    names = ["random", *aliases, "summary"]
    here = request.build_absolute_uri(".")
    return text("\n".join([*(here + name for name in names), f"{here}reset (POST)"]))


@csrf_exempt  # entrance refuses what pages of other sites send
@entrance("GET", "POST", counts=True)
def run_random(request: HttpRequest) -> HttpResponse:
    """One read of one of the caches, each as likely as the others; by POST perhaps a write."""
    return _run(request, dice.choice(bench().aliases))


@csrf_exempt
@entrance("GET", "POST", counts=True)
def run(request: HttpRequest, alias: str) -> HttpResponse:
    """One read of this cache and no other: the articles answered /msgpack_zlib with msgpack."""
    known = bench().aliases
    if alias not in known:
        close = get_close_matches(alias, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return text(f"no cache named {alias!r}; {hint}", 404)
    return _run(request, alias)


@csrf_exempt  # entrance refuses what pages of other sites send
@entrance("POST")
def reset(request: HttpRequest) -> HttpResponse:
    """Forget all samples, of all workers. The caches are left as they are."""
    bench().store.reset()
    return SeeOther("summary") if _wants_html(request) else text("reset")


@entrance("GET")
def summary(request: HttpRequest) -> HttpResponse:
    """As a page for browsers, as the articles' text for everybody else; or ``?format=``."""
    found = summarize(bench())
    form = request.GET.get("format") or _form(request)
    if form == "json":
        body = json.dumps(as_json(found), indent=1)
        answer = HttpResponse(body, content_type="application/json")
    elif form == "html":
        answer = summary_page(found)
    elif form == "fragment":
        answer = summary_fragment(found)
    elif form == "text":
        answer = text(as_text(found))
    else:
        answer = text(f"no format {form!r}; known: text, html, json", 400)
    patch_vary_headers(answer, ["Accept"])
    return answer


def _run(request: HttpRequest, alias: str) -> HttpResponse:
    """The articles' answer: the mean so far, in ms. What went wrong is said instead of it."""
    hit = bench().hit(alias, writes=request.method == "POST")
    mean = "notyet" if hit.mean_ms is None else f"{hit.mean_ms:.4f}"
    answer = text(f"{hit.outcome}: {hit.problem}" if hit.problem else mean, STATUS[hit.outcome])
    answer.headers["X-Cache-Alias"] = alias
    answer.headers["X-Cache-Outcome"] = hit.outcome
    return answer


def _form(request: HttpRequest) -> str:
    if _wants_html(request):
        return "html"
    return "json" if "application/json" in request.headers.get("Accept", "") else "text"


def _wants_html(request: HttpRequest) -> bool:
    # Said outright, as browsers do: curl sends */* and wants the text that the articles gave it.
    return "text/html" in request.headers.get("Accept", "")
