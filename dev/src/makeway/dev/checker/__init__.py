"""An independent judge of what makeway did, from the API server's audit log and the raw streams alone.

It shares no code with planner, evictor or plugin: only the messages and their codec. `history` is what is
read, `pods`, `orders` and `acts` make sense of it, `check` applies the rules, all of it pure; `read` is the
edge. A rule with a time bound that has not run out yields a `PendingPod` instead of a `Violation`.

    python -m makeway.dev.checker DIRECTORY     check a cluster of `makeway dev` or of the tests
"""
