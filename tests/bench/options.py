"""The options of a bench: numbers, texts and flags that have a default."""

from __future__ import annotations

import argparse


def read_options(about: str | None, **defaults: object) -> argparse.Namespace:
    """Read the command line; each option is of its default's type, and a flag where that is False."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default, help="default: %(default)s")
    return parser.parse_args()
