"""The user's own case: caches, values and traffic of theirs, instead of the lab's.

alias.py           a cache of their settings, as it is configured
guard.py           the object of it that arms get: it writes keys of the run alone
room.py            how much it takes before it throws out what is in it
data.py            their values, from files
sampling.py        or from a live Redis, read-only and paced; live_values.py: what they are
recordings.py      their traffic, summed up; traces.py: traces of others
replaying.py       a recording made ready to be played; script.py: the calls, one by one
recording_cost.py  what recording costs the site
"""
