"""What the monitors remember: names of gauges, the last half hour, recordings, what is kept with a message. No Qt."""
