"""The list of docs/conformance.md. `python -m tests.conformance.listed` writes it anew from the scenarios."""

from __future__ import annotations

from tests.conformance.library import PROJECT
from tests.conformance.scenarios import SCENARIOS, SUBJECTS

PAGE = PROJECT / "docs" / "conformance.md"
BEGIN = "<!-- the list: written by `python -m tests.conformance.listed` -->\n"


def listed() -> str:
    """The list as it should be."""
    parts = []
    for subject in SUBJECTS:
        assert subject.__doc__ is not None
        name = subject.__name__.rpartition(".")[2]
        parts.append(f"### {subject.__doc__.splitlines()[0].rstrip('.')}\n\n`scenarios/{name}.py`\n")
        parts.append("| statement | where it comes from |\n| --- | --- |")
        for scenario in SCENARIOS:
            if scenario.subject == name:
                clause = scenario.clause.replace("|", "\\|").replace("\n", "\\n")
                parts.append(f"| {scenario.statement} | {clause} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    text, begin, _ = PAGE.read_text().partition(BEGIN)
    assert begin, f"{PAGE} has no list to write anew"
    PAGE.write_text(text + begin + "\n" + listed())
