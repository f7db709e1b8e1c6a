"""What a preemptor asks of nodes besides resources, as layers of the columns.

Of pods, budgets and queues; sums over pod signatures are kept in tallies. It may import requests, batches and
the snapshot.
"""
