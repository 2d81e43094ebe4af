"""Where messages come from: sources give them in batches, and go on after a kill where the state says.

In this order: ``source`` (what every source is), ``registry`` (the types of the configuration, and how to add one), ``file``,
``kafka``, ``redis``, and ``merge`` (several sources in one order, up to what one transaction takes).
"""
