"""The command line: one file per verb. Each verb parses flags, calls one library function and prints text or JSON."""
