"""Web servers for one arm: gunicorn or uWSGI with the endpoint, nginx in front of it.

Each runs in the foreground from a directory of its own and needs no root. The application
listens on a unix socket, or on a port where it is asked directly; nginx on a free port of
127.0.0.1. All die with the worker process that started them.

One process of four threads for the application, whoever runs it: the servers have one core.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Literal

from nearcache.lab.base.arm import Unavailable
from nearcache.lab.base.messages import Setup
from nearcache.lab.endpoint.songs import SONGS, Songs, make_database
from nearcache.lab.servers import Running, ServerMissing, Servers, free_port

AppServer = Literal["gunicorn", "uwsgi"]
Front = Literal["none", "pass", "cache", "cache-lock"]
THREADS = 4
ENDPOINT = "nearcache.lab.endpoint.wsgi"
VARIABLE = "NEARCACHE_LAB_ENDPOINT"
APP_MARKER = b"X-App: "
NGINX_MARKER = b"Server: nginx/"

NGINX = Template("""\
daemon off;
pid nginx.pid;
worker_processes 1;
$user
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path body;
  fastcgi_temp_path fastcgi;
  scgi_temp_path scgi;
  proxy_temp_path proxy;
  uwsgi_temp_path uwsgi;
  keepalive_requests 100000000;
  tcp_nodelay on;
  $cache_path
  upstream app { server unix:$socket; $keepalive }
  server {
    listen 127.0.0.1:$port backlog=1024;
    add_header X-Cache-Status $$upstream_cache_status always;
    location / {
$handing_over
    }
  }
}
""")
CACHE_PATH = (
    "${kind}_cache_path cache keys_zone=songs:10m max_size=256m inactive=1d use_temp_path=off;"
)
# The key is nginx's own for a proxy; for uWSGI there is none, and none means one for all pages.
CACHE = """\
${kind}_cache songs;
${kind}_cache_key $$scheme$$host$$request_uri;
${kind}_cache_lock $lock;
"""
PROXY = """\
proxy_pass http://app;
proxy_http_version 1.1;
proxy_set_header Connection "";
proxy_set_header Host $$host;
"""
UWSGI = """\
uwsgi_pass app;
uwsgi_param QUERY_STRING $$query_string;
uwsgi_param REQUEST_METHOD $$request_method;
uwsgi_param CONTENT_TYPE $$content_type;
uwsgi_param CONTENT_LENGTH $$content_length;
uwsgi_param REQUEST_URI $$request_uri;
uwsgi_param PATH_INFO $$document_uri;
uwsgi_param SERVER_PROTOCOL $$server_protocol;
uwsgi_param REMOTE_ADDR $$remote_addr;
uwsgi_param SERVER_PORT $$server_port;
uwsgi_param SERVER_NAME $$server_name;
"""


@dataclass(frozen=True)
class Site:
    """One arrangement, running."""

    port: int  # where to ask
    app: Running
    front: Running | None
    cache_directory: Path | None


def start_site(
    setup: Setup, server: AppServer, front: Front, cache: Mapping[str, Any] | None, cpu: int | None
) -> tuple[Site, Servers]:
    """Start application and proxy. Stop the ``Servers`` that come with them.

    Raises:
        Unavailable: a program or a package is not installed.
    """
    directory = Path(setup.directory)
    servers = Servers(directory, None, setup.binaries)
    try:
        port = free_port() if front == "none" else None
        app = _start_app(servers, setup, server, cache, port, cpu)
        servers.running[server] = app
        if front == "none":
            return Site(port or 0, app, None, None), servers
        servers.cpu = cpu
        nginx, port = _start_nginx(servers, server, front)
        servers.running["nginx"] = nginx
        kept = directory / "nginx" / "cache" if front.startswith("cache") else None
        return Site(port, app, nginx, kept), servers
    except ServerMissing as missing:
        servers.stop()
        raise Unavailable(str(missing), missing.install) from missing
    except BaseException:
        servers.stop()
        raise


def _start_app(
    servers: Servers,
    setup: Setup,
    server: AppServer,
    cache: Mapping[str, Any] | None,
    port: int | None,
    cpu: int | None,
) -> Running:
    directory = servers.directory
    make_database(directory / "songs.sqlite3", Songs(setup.seed), range(SONGS))
    told = directory / "endpoint.json"
    told.write_text(
        json.dumps(
            {
                # Twins share a server, and must not find each other's answers there.
                "cache": {**cache, "KEY_PREFIX": setup.namespace} if cache else None,
                "database": str(directory / "songs.sqlite3"),
                "cpus": [] if cpu is None else [cpu],
            }
        )
    )
    start = _gunicorn if server == "gunicorn" else _uwsgi
    return start(servers, port, {VARIABLE: str(told)})


def _gunicorn(servers: Servers, port: int | None, env: Mapping[str, str]) -> Running:
    if find_spec("gunicorn") is None:
        raise ServerMissing(("gunicorn",), "pip install gunicorn")
    socket = servers.directory / "app.sock"
    config = servers.directory / "gunicorn.conf.py"
    settings = {
        "bind": [f"127.0.0.1:{port}" if port else f"unix:{socket}"],
        "workers": 1,
        "threads": THREADS,
        "worker_class": "gthread",
        "worker_tmp_dir": str(servers.directory),
        "loglevel": "warning",
        "keepalive": 60,
        "graceful_timeout": 1,
        "control_socket_disable": True,  # names that a version does not know are passed over
    }
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "gunicorn", "-c", str(config), ENDPOINT]
    question = b"GET /lab/state HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
    address = port or str(socket)
    return servers.launch("gunicorn", command, address, question, APP_MARKER, {}, env=env)


def _uwsgi(servers: Servers, port: int | None, env: Mapping[str, str]) -> Running:
    if port:
        raise ValueError("uWSGI is measured behind nginx only")
    # pyuwsgi puts its program beside the interpreter, which may not be on the PATH.
    beside = Path(sys.executable).with_name("uwsgi")
    names = (str(beside),) if beside.exists() else ("uwsgi",)
    binary = servers.find("uwsgi", names, "pip install pyuwsgi")
    socket = servers.directory / "app.sock"
    command = [binary, "--uwsgi-socket", str(socket), "--module", ENDPOINT, "--need-app"]
    command += [
        "--processes",
        "1",
        "--threads",
        str(THREADS),
        "--die-on-term",
        "--single-interpreter",
    ]
    command += ["--disable-logging", "--master", "--listen", "100"]
    address, question = str(socket), _uwsgi_packet("/lab/state")
    return servers.launch("uwsgi", command, address, question, APP_MARKER, {}, env=env)


def _uwsgi_packet(path: str) -> bytes:
    """A request in uWSGI's own protocol: a head, then names and values with their lengths."""
    variables = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_HOST": "lab"}
    variables |= {"SERVER_NAME": "lab", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1"}
    body = b"".join(
        struct.pack("<H", len(word)) + word.encode() for pair in variables.items() for word in pair
    )
    return struct.pack("<BHB", 0, len(body), 0) + body


def _start_nginx(servers: Servers, server: AppServer, front: Front) -> tuple[Running, int]:
    binary = servers.find("nginx", ("nginx", "/usr/sbin/nginx"), "apt install nginx-light")
    prefix = servers.directory / "nginx"
    prefix.mkdir(mode=0o700)
    port = free_port()
    (prefix / "nginx.conf").write_text(
        nginx_config(port, servers.directory / "app.sock", server, front)
    )
    command = [binary, "-p", str(prefix), "-c", "nginx.conf", "-e", "stderr"]
    question = b"GET /lab/state HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
    return servers.launch("nginx", command, port, question, NGINX_MARKER, {}), port


def nginx_config(port: int, socket: Path, server: AppServer, front: Front) -> str:
    """The whole of nginx's configuration."""
    kind = "proxy" if server == "gunicorn" else "uwsgi"
    lock = "on" if front == "cache-lock" else "off"
    lines = [PROXY if kind == "proxy" else UWSGI]
    if front != "pass":
        lines.append(CACHE)
    words = {"kind": kind, "lock": lock}
    return NGINX.substitute(
        # As root, nginx would go on as somebody who may not enter our directory.
        user="user root;" if os.geteuid() == 0 else "",
        cache_path=Template(CACHE_PATH).substitute(words) if front != "pass" else "",
        socket=socket,
        # uWSGI's protocol ends every connection with its answer.
        keepalive=f"keepalive {THREADS};" if kind == "proxy" else "",
        port=port,
        handing_over=Template("".join(lines)).substitute(words),
    )


def children_of(pid: int) -> Sequence[int]:
    """The processes that a server has forked."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]
