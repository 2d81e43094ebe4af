"""Who is told: alerts go to sinks, and lines to files, once what led to them has been committed.

In this order: ``outbox`` (lines in files, exactly once; what every sink is; all of them as one document of the state),
``registry`` (the types of the configuration, and how to add one), ``webhook`` (requests, and the queue of them).
"""
