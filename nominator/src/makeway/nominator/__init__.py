"""Preemption beside a scheduler that runs no plugin: find pods that wait, ask, nominate, commit orders."""
