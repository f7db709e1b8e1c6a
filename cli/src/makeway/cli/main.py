"""The `makeway` command."""


def main() -> None:
    """Run the command line."""
