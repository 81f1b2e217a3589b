"""The report: every table and figure of the paper's evaluation from saved records, as one HTML page and Markdown."""
