"""`makeway why`: the decisions that concern one pod, told in order."""
