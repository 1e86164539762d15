"""What a log tells of the cache, counted in one pass by the Rust core.

ledger.py   what it saves (savings.py) and costs, ledger_page.py in words
misses.py   why it is missed, and what would buy most (gains.py), misses_page.py in words
queries.py  lengths of an argument or of a part of the path
site.py     what the configuration adds
"""
