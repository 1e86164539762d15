"""A real S3 server on loopback: whichever of six products is on this machine.

Each is started as its own documentation says for one node, with keys made for this run,
files on a disk, and connections that stay open. Which it was stands in every report: they
differ by more than the clients do, and none of them is Amazon's.

``scripts/s3-server`` builds versitygw for a checkout; that is the one the tests run with.
Anything that refuses an unsigned request counts as started. Whether it really keeps
objects is asked before anything is timed, by the canary of the experiment.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from nearcache.errors import LabError
from nearcache.lab.base.directories import disk_parent, mount_of
from nearcache.lab.servers import Running, ServerMissing, Servers, free_port

BUCKET = "nearcache-lab"
REGION = "us-east-1"
# What scripts/s3-server has built, where this runs from a checkout.
BUILT_HERE = Path(__file__).resolve().parents[4] / ".cache" / "s3-server" / "versitygw"
INSTALL = "put versitygw, minio, garage, rclone, weed or s3s-fs on the PATH"
QUESTION = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 403 "
VERSION_TIMEOUT_S = 10


@dataclass(frozen=True)
class Place:
    """Where a server is to listen, what it is to believe, and where its files go."""

    port: int
    access_key: str
    secret_key: str
    directory: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Start:
    arguments: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


def start_s3(servers: Servers) -> Running:
    """The first product found, or the one whose path was given.

    Places: ``s3_endpoint``, ``s3_access_key``, ``s3_secret_key``, ``s3_region``, ``s3_bucket``,
    ``s3_product``, ``s3_mount`` (what its files lie on).
    """
    product, binary = find_s3(servers)
    directory = servers.directory_in(disk_parent())
    place = Place(
        port=free_port(),
        access_key=f"GK{secrets.token_hex(12)}",  # the form that garage insists on
        secret_key=secrets.token_hex(32),
        directory=directory,
    )
    start = PRODUCTS[product](place)
    version = version_of(binary)
    places = {
        "s3_endpoint": f"http://{place.address}",
        "s3_access_key": place.access_key,
        "s3_secret_key": place.secret_key,
        "s3_region": REGION,
        "s3_bucket": BUCKET,
        "s3_product": f"{product} {version}",
        "s3_mount": str(mount_of(directory)),
    }
    running = servers.launch(
        "s3", [binary, *start.arguments], place.port, QUESTION, REFUSED, places,
        cwd=directory, env=start.env,
    )  # fmt: skip
    return replace(running, version=places["s3_product"])


def find_s3(servers: Servers) -> tuple[str, str]:
    """(product, path). Raises ServerMissing, or LabError for a path that is no such program."""
    if servers.binaries.get("s3"):
        binary = servers.find("s3", (), INSTALL)
        return _product_of(binary), binary
    for product in PRODUCTS:
        found = shutil.which(product)
        if found and not _too_old(product, found):
            return product, found
    if BUILT_HERE.exists():
        return "versitygw", str(BUILT_HERE)
    raise ServerMissing(("an S3 server",), INSTALL)


def version_of(binary: str) -> str:
    """What it calls its own version, in a word; "of unknown version" if it will not say."""
    for question in ("--version", "version"):
        with suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(
                [binary, question],
                check=False,
                capture_output=True,
                text=True,
                timeout=VERSION_TIMEOUT_S,
            )
            if found := re.search(r"v?\d+\.\d[\w.\-]*|RELEASE\.[\w\-]+", said.stdout):
                return found.group()
    return "of unknown version"


def _product_of(binary: str) -> str:
    name = Path(binary).name
    for product in PRODUCTS:
        if name.startswith(product):
            return product
    raise LabError(f"{binary} is none of {', '.join(PRODUCTS)}; the file must be called like one")


def _too_old(product: str, binary: str) -> bool:
    """Debian's rclone does not know ``serve s3`` yet."""
    if product != "rclone":
        return False
    numbers = [int(number) for number in re.findall(r"\d+", version_of(binary))[:2]]
    return numbers < [1, 65]


def _versitygw(place: Place) -> Start:
    # It closes the connection after every answer unless told otherwise; S3 does not.
    arguments = ["--port", place.address, "--region", REGION, "--quiet", "--keep-alive"]
    arguments += ["posix", str(place.directory)]
    env = {"ROOT_ACCESS_KEY": place.access_key, "ROOT_SECRET_KEY": place.secret_key}
    return Start(arguments, env)


def _minio(place: Place) -> Start:
    env = {
        "MINIO_ROOT_USER": place.access_key,
        "MINIO_ROOT_PASSWORD": place.secret_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    return Start(["server", "--quiet", "--address", place.address, str(place.directory)], env)


def _garage(place: Place) -> Start:
    """From 2.3 on; earlier ones need a layout and keys made by hand."""
    config = place.directory / "garage.toml"
    config.write_text(
        f'metadata_dir = "{place.directory}/meta"\n'
        f'data_dir = "{place.directory}/data"\n'
        'db_engine = "lmdb"\nreplication_factor = 1\n'
        f'rpc_bind_addr = "127.0.0.1:{free_port()}"\nrpc_secret = "{secrets.token_hex(32)}"\n'
        f'[s3_api]\ns3_region = "{REGION}"\napi_bind_addr = "{place.address}"\n'
    )
    env = {
        "GARAGE_DEFAULT_ACCESS_KEY": place.access_key,
        "GARAGE_DEFAULT_SECRET_KEY": place.secret_key,
        "GARAGE_DEFAULT_BUCKET": BUCKET,
    }
    return Start(["-c", str(config), "server", "--single-node", "--default-bucket"], env)


def _weed(place: Place) -> Start:
    config = place.directory / "s3.json"
    key = {"accessKey": place.access_key, "secretKey": place.secret_key}
    lab = {"name": "lab", "credentials": [key], "actions": ["Admin", "Read", "Write", "List"]}
    config.write_text(json.dumps({"identities": [lab]}))
    arguments = ["server", f"-dir={place.directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    arguments += ["-s3", f"-s3.port={place.port}", f"-s3.config={config}", "-volume.max=50"]
    arguments += ["-master.volumeSizeLimitMB=64", f"-s3.port.grpc={free_port()}"]
    for part in ("master", "volume", "filer"):
        arguments += [f"-{part}.port={free_port()}", f"-{part}.port.grpc={free_port()}"]
    return Start(arguments)


def _rclone(place: Place) -> Start:
    arguments = ["serve", "s3", "--config", "/dev/null", "--addr", place.address]
    arguments += ["--auth-key", f"{place.access_key},{place.secret_key}", str(place.directory)]
    return Start(arguments)


def _s3s_fs(place: Place) -> Start:
    arguments = ["--host", "127.0.0.1", "--port", str(place.port)]
    arguments += ["--access-key", place.access_key, "--secret-key", place.secret_key]
    return Start([*arguments, str(place.directory)])


# The nearer to what runs in production, the earlier.
PRODUCTS: dict[str, Callable[[Place], Start]] = {
    "minio": _minio,
    "garage": _garage,
    "versitygw": _versitygw,
    "weed": _weed,
    "rclone": _rclone,
    "s3s-fs": _s3s_fs,
}
