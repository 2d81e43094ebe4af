"""Who is told: alerts go to sinks, and lines to files, once what led to them has been committed.

In this order: ``outbox`` (what every sink is, and all of them as one document of the state), ``registry`` (the types of the
configuration, and how to add one), ``append_file`` (lines in files, exactly once), ``webhook`` (one request), ``webhook_queue``
(requests on their way).
"""
