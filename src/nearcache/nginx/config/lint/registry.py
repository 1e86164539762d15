"""Every rule, one line each. A new rule is one function and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.nginx.config.lint import (
    advisories,
    freshness,
    headers,
    keys,
    privacy,
    sent_headers,
    syntax,
    zones,
)
from nearcache.nginx.config.lint.model import CacheRule, LocationRule, Rule, WholeRule

RULES: Sequence[Rule] = (
    # keys
    LocationRule("no-key", "error", keys.no_key),
    LocationRule("key-without-path", "error", keys.key_without_path),
    LocationRule("key-without-host", "error", keys.key_without_host),
    LocationRule("key-without-scheme", "warning", keys.key_without_scheme),
    LocationRule("host-port", "warning", keys.host_port),
    LocationRule("unkeyed-arguments", "error", keys.unkeyed_arguments),
    LocationRule("unkeyed-header", "warning", sent_headers.unkeyed_header),
    LocationRule("empty-header", "note", sent_headers.empty_header),
    LocationRule("split-arguments", "note", keys.split_arguments),
    LocationRule("decoded-path", "warning", keys.decoded_path),
    LocationRule("methods", "error", keys.methods),
    LocationRule("head", "error", keys.head),
    LocationRule("slice", "error", keys.slices),
    # zones
    CacheRule("zone-unused", "warning", zones.zone_unused),
    LocationRule("zone-unknown", "error", zones.zone_unknown),
    WholeRule("zone-twice", "error", zones.zone_twice),
    CacheRule("inactive", "warning", zones.inactive),
    CacheRule("inactive-default", "note", zones.inactive_default),
    CacheRule("zone-size", "warning", zones.zone_size),
    CacheRule("no-limit", "warning", zones.no_limit),
    CacheRule("temp-path", "warning", zones.temp_path),
    CacheRule("flat", "warning", zones.flat),
    CacheRule("nested", "error", zones.nested),
    # fetching
    LocationRule("no-lock", "warning", freshness.lock),
    LocationRule("no-stale", "warning", freshness.stale),
    LocationRule("no-background-update", "note", freshness.background),
    LocationRule("errors-kept", "warning", freshness.errors_kept),
    LocationRule("errors-in-memory", "note", freshness.errors_in_memory),
    LocationRule("no-ttl", "note", freshness.no_ttl),
    LocationRule("buffering-off", "error", freshness.buffering),
    LocationRule("min-uses", "note", freshness.uses),
    LocationRule("open-file-cache", "warning", freshness.open_files),
    LocationRule("http2-upstream", "note", freshness.http2),
    # what is somebody's own
    LocationRule("authorization", "error", privacy.authorization),
    LocationRule("session-cookie", "warning", privacy.session),
    LocationRule("bypass-only", "error", privacy.bypass_only),
    LocationRule("no-cache-only", "note", privacy.no_cache_only),
    LocationRule("open-bypass", "note", privacy.open_bypass),
    LocationRule("set-cookie-served", "error", privacy.set_cookie),
    LocationRule("cache-control-ignored", "warning", privacy.cache_control),
    LocationRule("vary-ignored", "warning", privacy.vary),
    WholeRule("open-purge", "error", privacy.open_purge),
    # what can be seen
    LocationRule("status-header", "note", headers.status_header),
    LocationRule("lost-directives", "warning", headers.lost),
    LocationRule("log-format", "note", headers.log_format),
    # nginx's own
    WholeRule("map-after-capture", "error", advisories.map_after_capture),
    LocationRule("numbered-capture", "error", advisories.numbered_capture),
    WholeRule("gone", "note", syntax.gone),
    WholeRule("not-yet", "error", syntax.not_yet),
)
NAMES = tuple(rule.name for rule in RULES)
assert len(set(NAMES)) == len(NAMES)
