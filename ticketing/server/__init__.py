"""asyncio around one node: listeners, transports, TLS, peer links, admin HTTP and files."""
