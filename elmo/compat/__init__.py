"""Other libraries' interfaces for code that outlived them: change one import and it runs."""
