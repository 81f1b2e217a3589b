"""Charts as plain SVG text, for pretraining, the demo, benchmarks and the report."""
