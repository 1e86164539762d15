"""The lab: which cache is fastest for this team, on this machine, with this data?

What came of it
    reports/      readers of a sample: terminal, Markdown, CSV, one HTML page
    advice/       what to run: the sentence, the CACHES block, the costs

What is asked, and of whom
    experiments/  one question, one folder: the plan, the arm that measures, the findings
    views/        what only one experiment shows, as every report draws it

How it was measured, and how far it holds
    runner/       from a wanted to a file: order, workers, random rounds, Ctrl-C
    judging/      who is faster than whom, as far as the run can tell
    checks/       the rules of evidence
    arms/         what can be measured, and what several experiments measure it with
    timers/       the timed loops, and where the time goes
    proofs/       that it was what its name says, and answered right

What it stands on
    load/         who asks, and when
    servers/      private servers, started and stopped here; endpoint/: a site for them
    own/          caches, values and traffic of the user's own, instead
    workloads/    the values that are stored, each with key, version and checksum
    results/      what was measured: one JSON file, raw histograms inside
    statistics/   without a word about caches
    base/         nouns, messages

    plain_memcached.py   what an article used and nobody ships, as seed_serializers.py; samples
                         name them by their dotted paths, so they stay here

A room imports rooms that stand below it on this page, never one above
(tests/test_architecture.py): a report never measures and the driver never judges.
Nothing outside ``cli`` and ``web`` imports this package.

What a run cannot answer is part of its experiment, and is printed with every report.
"""
