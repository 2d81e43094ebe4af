"""What comes in, read by one set of rules for the command and the monitor."""
