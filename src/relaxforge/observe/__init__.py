"""One way to log, measure and show progress; every line carries the ids it is about."""
