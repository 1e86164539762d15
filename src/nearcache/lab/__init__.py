"""The lab: which cache is fastest for this team, on this machine, with this data?

What is asked, and of whom
    experiments/   the questions: candidates, workload, measures (data, no code); model.py: nouns
    candidates.py  what can be measured, one entry each; plain_memcached.py,
                   seed_serializers.py: what seeds used and nobody ships
    workloads/     the values that are stored, each with key, version and checksum;
                   dictionaries.py: trained on others of their kind
    own/           caches, values and traffic of the user's own, instead

How it is measured
    runs/          from a wish to a file: order, workers, random rounds, Ctrl-C
    servers/       private servers, started and stopped here; endpoint/, load/: a site for them, and
                   who asks it
    subjects/      how each kind of candidate is measured
    timing/        the timed loops, and where the time goes
    proofs/        that it was what its name says, and answered right

What came of it
    sample.py      what was measured: one JSON file, raw histograms inside (histogram.py,
                   distribution.py); files.py: many of them
    method/        the rules of evidence, and statistics that know nothing of caches
    judging/       who is faster than whom, as far as the run can tell
    advice/        what to run: the sentence, the CACHES block, the costs
    views/         what only one experiment shows; drawn by every report
    reports/       readers of a sample: terminal, Markdown, CSV, one HTML page; units.py: numbers

The arrows point downwards: a report never measures and the driver never judges.
Nothing outside ``cli`` and ``web`` imports this package.

What a run cannot answer is part of its experiment, and is printed with every report.
"""
