"""The join: predictions wait for their labels by (model, version, id), and pairs go out; nothing that came is uncounted.

Read join.py (the rules in words, the door, one event after the other), runs.py (the same for whole runs of events), pending.py
(what is remembered).
"""
