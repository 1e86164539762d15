"""What can be measured, and what several experiments measure it with.

candidates.py     every candidate, one entry each
alias.py          a cache alias, whoever made it
child.py          a process of an arm's own; child_link.py: its end
crowd.py          many contenders in such a process; crowd_styles.py: greenlets, threads, tasks;
                  crowd_clients.py: what they ask with
forked.py         a forked child of the worker, that may be killed

What one experiment alone measures is in its folder in ``experiments``.
"""
