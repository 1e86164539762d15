"""The lab: which cache is fastest for this team, on this machine, with this data?

    experiments/   the questions: candidates, workload, measures (data, no code)
    candidates.py  what can be measured; one entry per configuration
    workloads/     the values that are stored, each with key, version and checksum
    servers.py     private redis-server and memcached, started and stopped here
    worker.py      one process per candidate: sets up, proves, measures on request
    driver.py      asks the workers in random order, collects, survives Ctrl-C
    sample.py      what was measured: one JSON file, raw histograms inside
    rules.py       the rules of the method as a table; what breaks one that voids has no rank
    stats.py       ratios, intervals, the noise floor; knows nothing of caches
    analysis.py    a sample judged: rows, ties, contrasts, the seeds' claims
    verdict.py     the sentence and the CACHES block, made from a sample only
    compare.py     two samples: what became slower, what else changed
    views/         what only one experiment shows; drawn by every report
    reports/       readers of a sample: terminal, Markdown, CSV, one HTML page

The arrows point downwards: a report never measures and the driver never judges.
Nothing outside ``cli`` and ``web`` imports this package.

What a run cannot answer is part of its experiment, and is printed with every report.
"""
