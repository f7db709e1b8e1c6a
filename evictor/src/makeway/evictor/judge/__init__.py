"""May this order, and each of its victims, be carried out? Pure."""
