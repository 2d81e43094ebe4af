"""What is told, and when: rules read the windows and detectors of each segment at fixed moments of event time.

In this order: ``rule`` (one verdict on numbers, the states of a rule, an alert as a document), ``evaluation`` (all rules at a
moment, the audit, what stands in the status).
"""
