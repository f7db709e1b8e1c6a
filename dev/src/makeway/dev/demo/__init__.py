"""The demo: the main job on a real control plane, told as it happens, every claim checked."""
