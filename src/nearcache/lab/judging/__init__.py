"""A sample judged: who is faster than whom, as far as the run can tell.

analysis.py     rows, ranks, contrasts; ties.py: of equals, the one to take
comparisons.py  pair by pair, and what is void; reading.py: numbers by name
words.py        how a comparison is said
claims.py       the articles' headlines, asked again; explain.py: what made a difference
compare.py      two runs: what became slower, what else changed
"""
