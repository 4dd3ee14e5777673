"""What limits the machine now: rules over the last seconds of readings, each with its numbers and what can be done."""
