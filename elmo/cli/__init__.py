"""The command line: one file per verb, flags in, one library call, text or JSON out. Nothing else imports this."""
