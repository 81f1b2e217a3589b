"""How models lie in files: read safely, written whole, every published layout, none of them asked for by name."""
