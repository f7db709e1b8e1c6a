"""The smallest changes that would unblock a pending pod, each found by planning again."""
