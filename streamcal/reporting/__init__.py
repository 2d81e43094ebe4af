"""What people read: sentences, tables, diagrams. Nothing here computes a statistic.

In this order: ``verdict`` (the words), ``text`` (tables and the diagram), ``figure`` (the same as a
picture), ``thresholds`` (what must not be crossed), ``sums`` (what a report is about: the events of a table, per segment).
"""
