"""The registry of experiments: a new one is a new folder and one line here."""

from __future__ import annotations

from nearcache.errors import LabError
from nearcache.lab.arms.candidates import unknown_name
from nearcache.lab.base.model import Experiment
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.experiments.codecs.plan import CODECS
from nearcache.lab.experiments.disks.plan import DISKS
from nearcache.lab.experiments.drill.plan import DRILL
from nearcache.lab.experiments.hashes.plan import HASHES
from nearcache.lab.experiments.http.plan import HTTP
from nearcache.lab.experiments.keys.plan import KEYS
from nearcache.lab.experiments.locks.plan import LOCKS
from nearcache.lab.experiments.objects.plan import OBJECTS
from nearcache.lab.experiments.pools.plan import POOLS
from nearcache.lab.experiments.replay.plan import REPLAY
from nearcache.lab.experiments.stores.plan import STORES
from nearcache.lab.experiments.warmup.plan import WARMUP

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
