"""How findings are shown, whoever found them.

words.py     numbers with units, and what strangers sent
model.py     a page: sentences, tables, charts, notes
terminal.py  as plain text; html.py: as one file
"""
