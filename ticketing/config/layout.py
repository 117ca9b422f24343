"""What the files and folders of a cluster are called."""

from __future__ import annotations

CLUSTER_FOLDER = "ticketing-cluster"
"""What `init` writes when it is not told otherwise, and where commands look."""

NODE_FILE = "node.toml"
CLIENT_FILE = "client.toml"
ADMIN_FILE = "admin.toml"
STATE_FOLDER = "state"
TLS_FOLDER = "tls"
AUTHORITY_FOLDER = "ca"
REPLACEMENTS_FOLDER = "replacements"
"""In the cluster's folder: what `node replace` prepares."""
FORMER_FOLDER = "former"
"""Beside it: what the replaced nodes had."""
