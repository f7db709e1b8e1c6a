"""The demo: scenarios on a real control plane, told as they happen, every claim checked."""
