"""The questions of the lab: one experiment, one folder.

registry.py   all of them, by name; a new one is a new folder and one line there
backends/     which cache backend answers fastest, for one process
codecs/       which serializer, compressor and parser
disks/        which of two disks is the better place for a cache directory
drill/        what a cache does when its server is stopped, frozen or full
hashes/       many small values: keys of their own, or hashes
http/         an endpoint cached in Django, by nginx in front of it, or not at all
keys/         what hashing a key costs
locks/        what a lock costs: alone, in a crowd, after its holder has died
objects/      how much slower than a cache S3 is
pools/        few connections for many contenders
replay/       the calls of the user's own site
stores/       Redis against PostgreSQL at JSON
warmup/       what it costs to begin

Each is as backends/plan.py (question, candidates, operations: data, no code; docs/experiments.md
has its head), codecs/arm.py (the arm that measures; ``arms`` has the one for plain aliases)
and backends/findings.py (what only this experiment shows). A folder knows no other, and this
file imports nothing, so that a worker loads one experiment and not all.
"""
