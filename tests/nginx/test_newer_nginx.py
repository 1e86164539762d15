"""What only a newer nginx writes into its cache: heads of HTTP/2 upstreams, since 1.29.4."""

from __future__ import annotations

import re
import subprocess
from urllib.parse import urlsplit

import pytest

from nearcache.lab.servers import free_port
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.purge.purge import Purger

from .conftest import StartNginx

newer_nginx = pytest.mark.parametrize("program", ["newer"], indirect=True)


@newer_nginx
def test_a_response_of_an_http2_upstream_is_read_and_purged(
    start_nginx: StartNginx, program: str
) -> None:
    if version_of(program) < (1, 29, 4):
        pytest.skip(f"{program} has no HTTP/2 upstreams: their heads are NOT tested")
    port = free_port()  # nginx is the upstream, too
    nginx = start_nginx(
        http=f"""
            proxy_cache_path {{cache}} levels=1:2 keys_zone=z:1m;
            server {{
                listen 127.0.0.1:{port}; http2 on;
                location / {{ add_header Vary X-Side; return 200 hello; }}
                location /gone {{ return 404; }}
            }}""",
        server=f"""location / {{
            proxy_pass http://127.0.0.1:{port}; proxy_http_version 2; proxy_cache z;
            proxy_cache_valid any 1h; add_header X-Cache $upstream_cache_status always; }}""",
    )
    assert nginx.fill("/a").body == b"hello"
    nginx.fill("/gone")
    with CacheDir(nginx.cache) as directory:
        entries = {urlsplit(found.entry.text).path: found.entry for found in directory.walk()}
        receipt = Purger(directory).purge_where(lambda entry: True)
    assert {entry.head.kind for entry in entries.values()} == {"http2"}
    assert {path: entry.status for path, entry in entries.items()} == {"/a": 200, "/gone": 404}
    assert entries["/a"].vary == b"X-Side"
    assert receipt.files == 2
    assert (nginx.get("/a").cache, nginx.get("/gone").cache) == ("EXPIRED", "EXPIRED")


def version_of(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"nginx/([\d.]+)", said)
    assert found, said
    return tuple(map(int, found.group(1).split(".")))
