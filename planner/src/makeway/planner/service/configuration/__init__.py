"""What is in force: policy, queues and brake as they are read, told as the control state, and warned of."""
