"""The join: predictions wait for their labels by (model, version, id), and pairs go out; nothing that came is uncounted.

Read join.py (the rules in words, the door, whole runs of events), rules.py (the rules, one event after the other), pending.py
(what is remembered).
"""
