from __future__ import annotations

from ticketing.config.lines import find_lines, line_of

TEXT = '''\
# a comment = 1
[node]
place = "node-1"  # [not.a.table]
"quoted" = 2

[[cluster.nodes]]
name = "a"
hosts = [
    "key = 1",
    "[x]",
]
[[cluster.nodes]]
name = """
key = "not a key"
"""
a.b = 1
'''


def test_keys_and_tables_stand_where_they_are_written() -> None:
    lines = find_lines(TEXT)
    assert lines == {
        "node": 2,
        "node.place": 3,
        "node.quoted": 4,
        "cluster.nodes[1]": 6,
        "cluster.nodes[1].name": 7,
        "cluster.nodes[1].hosts": 8,
        "cluster.nodes[2]": 12,
        "cluster.nodes[2].name": 13,
        "cluster.nodes[2].a.b": 16,
    }


def test_a_key_that_is_not_there_is_told_with_the_table_around_it() -> None:
    lines = find_lines(TEXT)
    assert line_of(lines, "cluster.nodes[2].client") == 12
    assert line_of(lines, "cluster.nodes[1].hosts[2]") == 8
    assert line_of(lines, "node.missing.deep") == 2
    assert line_of(lines, "nowhere.at.all") == 0
