"""Small readers fitted on frozen vectors, to see what each layer knows (paper section 5.3, tables 5 and 6)."""
