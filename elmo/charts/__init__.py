"""Charts as plain SVG text; used by pretraining, benchmarks and the report."""
