"""evenkeel as a Flower app: messages between Flower and the program, as they are."""
