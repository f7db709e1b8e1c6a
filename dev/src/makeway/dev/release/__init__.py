"""What a release consists of, made without a registry: `make release-dry-run`.

Every file comes out the same from the same commit, wherever the checkout lies: times are the commit's, names
are sorted, and nothing of the machine is written down.
"""
