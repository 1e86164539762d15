"""What a log tells of the cache, counted in one pass by the Rust core.

ledger.py   what it saves (savings.py) and costs, and page.py in words
queries.py  lengths of an argument or of a part of the path
"""
