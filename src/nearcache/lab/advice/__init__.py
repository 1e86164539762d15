"""What to run: sentences and a CACHES block, made from samples only.

verdict.py       of one run; unmeasured.py: what was ordered in vain
recommend.py     of several (gathering.py finds them): backend, codec, failures together
admission.py     who may be recommended at all; failures.py: how each fails
codec_choice.py  codecs for a link
costs.py         money, from prices a user gives
"""
