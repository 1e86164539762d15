"""What findings are before they are shown, and how they are shown, whoever found them.

words.py     amounts as one says them, and what strangers sent; units.py: what was measured
model.py     tables, curves, maps, pages
plots.py     drawn in characters
plain.py     a page that fits a width; terminal.py: tables of which nothing is left out
html.py      the frame of a page that is one file, and its policy; charts/: its curves
"""
