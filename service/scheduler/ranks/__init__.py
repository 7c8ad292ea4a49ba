"""The ranks of a trial as Ray actors, and the messages to them while they train. Never here: the choice of the
trial."""
