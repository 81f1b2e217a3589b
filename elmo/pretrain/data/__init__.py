"""Text files to the prepared folder, and the prepared folder to batches."""
