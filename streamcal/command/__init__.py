"""`streamcal`: one file a command, nothing but options, reading, report.

In this order: ``options`` (what can be asked, and how errors are said), ``main`` (the commands), ``report``, ``watch``,
``maps`` (fit and apply), ``monitor`` (status and replay), ``demo`` (and warmup).
"""
