"""`ticketing top`: the live dashboard, a reader of the nodes' admin planes (docs/admin.md, docs/dashboard.md)."""
