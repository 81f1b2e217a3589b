"""Charts as plain SVG text; used by pretraining, analysis and the report."""
