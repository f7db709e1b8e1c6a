"""`makeway lint`, `policy` and `queues`: the policy and the queues as files and in force."""
