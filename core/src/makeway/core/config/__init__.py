"""Reading configuration: YAML to typed values, with the place of each error.

Pure. Imports nothing else of `core` but `text`; `policy` and `queues` describe their documents with it.
"""
