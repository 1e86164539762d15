"""What every room above may import. Nothing here knows Django or a store.

clock.py                time from outside, so that tests need no sleep
keys.py                 keys of caches, and glob patterns over them
function_keys.py        keys of function calls
options.py              options of all backends: unit, range and documentation in one value
per_process.py          what belongs to a process, and how a forked child notices
threads.py              starting a thread, and which thread runs
interrupts.py           whether foreign code or a signal handler raised an error
sans_io.py              steps that are written once, and run as plain calls or awaited
degraded_mode.py        outages that a cache forgives: a log line per change of state
counters.py             what was forgiven, counted
living_directories.py   directories that go with the process that made them
"""
