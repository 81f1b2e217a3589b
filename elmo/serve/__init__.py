"""The HTTP server: one front process that speaks HTTP and batches texts, and worker processes that run the model.

A request's path: protocol (sockets, header timeout) -> middleware (host, key, body) -> app (routes) -> texts (tokens)
-> batcher and request_queue (batches by token budget) -> workers (pipes, watchdog) -> worker (the model) -> responses.
Only `worker` imports torch; the front process needs no model in memory.
"""
