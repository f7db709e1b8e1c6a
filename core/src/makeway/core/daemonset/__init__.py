"""Room for a pod that its DaemonSet has bound to one node: detection, victims, rules. Pure."""
