"""The admin plane: HTTP and JSON for operators (`docs/admin.md`, spec 9).

Imported in a thread while the node runs already, since aiohttp takes long to load; connections wait in the
listener's backlog until then.
"""

from ticketing.server.admin.plane import AdminPlane

__all__ = ["AdminPlane"]
