"""The command line: the only room that knows all others. Rooms are imported by the command that needs them, so that
`--help` stays fast."""
