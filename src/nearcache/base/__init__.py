"""What knows neither Django nor a store, and what every room above may import.

clock.py                time from outside, so that tests need no sleep
keys.py                 keys of caches, and glob patterns over them
function_keys.py        keys of function calls
options.py              options of all backends: unit, range and documentation in one value
per_process.py          what belongs to a process, and how a forked child notices
threads.py              starting a thread, and which thread runs
interrupts.py           an error of foreign code, or a signal handler's?
sans_io.py              steps that are written once and run plain and awaited
degraded_mode.py        what was forgiven in an outage, said once
counters.py             what was forgiven, counted
living_directories.py   directories that go with the process that made them
"""
