"""The lab: which cache is fastest for this team, on this machine, with this data?

What is asked, and of whom
    experiments/   the questions: candidates, workload, measures (data, no code); model.py: nouns
    candidates.py  what can be measured, one entry each; own_alias.py: a user's own cache;
                   plain_memcached.py, seed_serializers.py: what seeds used and nobody ships
    workloads/     the values that are stored, each with key, version and checksum; own_data.py:
                   a user's own, from files or (sampling.py, live_values.py) from a live Redis;
                   dictionaries.py: trained on others of their kind
    recordings.py  a site's traffic, summed up; traces.py: of others; replaying.py, script.py: made
                   ready to be played; recording_cost.py: what recording costs

A run
    laboratory.py  from what a user asks for to an order, and to files (keeping.py, directories.py)
    driver.py      asks the workers (crew.py, messages.py) in random order (interleaving.py),
                   collects, survives Ctrl-C (stopping.py); stolen.py: what other guests took
    servers/       private servers, started and stopped here; endpoint/, load/: a site for them, and
                   who asks it
    worker.py      one process per candidate: sets up, proves, measures on request
    subjects/      how each kind of candidate is measured; seal_off.py: with a module absent
    operations.py  the timed loops over an alias: timed.py; open_loop.py, fixed_rate.py: at a rate
    attribution.py where the time of one goes; link.py, wire.py, traffic.py: the way to a server

Proof that it was what it says
    proof.py       parser, pool, compressor, server, as they are; place.py: where it stores
    canary.py      does it keep a value, and for whom; companion.py: for another process;
                   brief.py: until when; fidelity.py: of which type
    stored.py      bytes per item; stored_form.py: what they are
    machine.py     what it ran on; redact.py: without secrets

What came of it
    sample.py      what was measured: one JSON file, raw histograms inside (distribution.py);
                   files.py: many of them; merging.py: as one
    rules.py       the rules of the method as a table; what breaks one that voids has no rank:
                   evidence.py looks at the sample, readings.py (steadiness.py) at the comparisons;
                   findings.py: their words; unmeasured.py: what was ordered in vain
    stats.py       ratios, intervals, the noise floor; knows nothing of caches: bootstrap.py,
                   student.py; firm.py: which percentiles may be quoted
    analysis.py    a sample judged: rows, ties (ties.py), contrasts; comparisons.py: pair by pair;
                   claims.py: the seeds'; explain.py: why
    verdict.py     the sentence and the CACHES block, made from a sample only
    compare.py     two samples: what became slower, what else changed
    recommend.py   one entry from many samples (gathering.py): admission.py: who may be taken,
                   failures.py: how it fails; codec_choice.py, breakeven.py: codecs on a network
    costs.py       money, from prices a user gives
    views/         what only one experiment shows; drawn by every report
    reports/       readers of a sample: terminal, Markdown, CSV, one HTML page; units.py: numbers

The arrows point downwards: a report never measures and the driver never judges.
Nothing outside ``cli`` and ``web`` imports this package.

What a run cannot answer is part of its experiment, and is printed with every report.
"""
