"""Who is told: alerts go to sinks, and lines to files, once what led to them has been committed.

In this order: ``sink`` (what every sink is), ``registry`` (the types of the configuration, and how to add one), ``append_file``
(lines in files, exactly once), ``webhook`` (one request), ``webhook_queue`` (requests on their way), ``outbox`` (all of it as
one document of the state).
"""
