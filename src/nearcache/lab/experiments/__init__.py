"""The registry of experiments: a new one is a new file and one line here."""

from __future__ import annotations

from nearcache.errors import LabError
from nearcache.lab.candidates import unknown_name
from nearcache.lab.experiments.backends import BACKENDS
from nearcache.lab.experiments.codecs import CODECS
from nearcache.lab.experiments.disks import DISKS
from nearcache.lab.experiments.drill import DRILL
from nearcache.lab.experiments.hashes import HASHES
from nearcache.lab.experiments.http import HTTP
from nearcache.lab.experiments.keys import KEYS
from nearcache.lab.experiments.locks import LOCKS
from nearcache.lab.experiments.objects import OBJECTS
from nearcache.lab.experiments.pools import POOLS
from nearcache.lab.experiments.replay import REPLAY
from nearcache.lab.experiments.stores import STORES
from nearcache.lab.experiments.warmup import WARMUP
from nearcache.lab.model import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        BACKENDS,
        CODECS,
        DISKS,
        KEYS,
        OBJECTS,
        LOCKS,
        POOLS,
        STORES,
        HASHES,
        HTTP,
        DRILL,
        WARMUP,
        REPLAY,
    )
}


def experiment_named(name: str) -> Experiment:
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise LabError(unknown_name("experiment", name, EXPERIMENTS)) from None
