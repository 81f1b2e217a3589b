"""Records of runs, probes and trainings on one page, beside the paper's figures: HTML and Markdown."""
