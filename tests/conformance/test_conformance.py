"""The conformance list, played against each client library. See README.md, and docs/conformance.md for the list."""

from __future__ import annotations

import pytest

from tests.conformance.library import LIBRARIES, Library
from tests.conformance.perform import Outcomes, perform
from tests.conformance.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All scenarios that are selected for a library are played at once, before the first one is told."""
    library: Library = request.param
    selected = []
    for item in request.session.items:
        parameters = getattr(item, "callspec", None)
        if item.path == request.path and parameters and parameters.params.get("outcomes") is library:
            selected.append(parameters.params["scenario"])
    return perform(library, selected, tmp_path_factory.mktemp(library.name))


def _parameter(library: Library) -> object:
    missing = pytest.mark.skipif(not library.command, reason=library.missing)
    return pytest.param(library, id=library.name, marks=missing)


@pytest.mark.parametrize("outcomes", [_parameter(library) for library in LIBRARIES], indirect=True)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.subject}-{scenario.name}")
def test_every_library_conforms(scenario: Scenario, outcomes: Outcomes) -> None:
    failure = outcomes[scenario.name]
    if failure is not None:
        raise failure
