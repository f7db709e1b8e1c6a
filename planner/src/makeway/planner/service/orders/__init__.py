"""Orders in flight and what became of them.

The ledger and the streams it follows, marks left behind and their repair, the fence of quota orders.
"""
