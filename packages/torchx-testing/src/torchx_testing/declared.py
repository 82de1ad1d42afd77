"""What a back end cannot do: declared with its reason, left out, and counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NoReturn

import pytest

#: Under this name the report of a test carries what it left out.
PROPERTY = "torchx_declared_unsupported"


class Suite:
    """Base of the conformance suites.

    Attributes:
        features: What a subclass may declare.
        unsupported: Features the back end lacks, with the reason.
    """

    features: ClassVar[frozenset[str]] = frozenset()
    unsupported: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _declarations(self, request: pytest.FixtureRequest) -> None:
        from torchx_specs.errors import nearest

        self._properties = request.node.user_properties
        for name in self.unsupported.keys() - self.features:
            pytest.fail(
                f"{type(self).__name__}.unsupported names no feature: {name};"
                f"{nearest(name, self.features)} there are: {', '.join(sorted(self.features))}"
            )

    def lacks(self, feature: str) -> bool:
        """Return True if the back end declares that it lacks ``feature``, and counts that."""
        assert feature in self.features, f"no such feature: {feature}"
        if feature not in self.unsupported:
            return False
        self.declare(feature, self.unsupported[feature])
        return True

    def needs(self, feature: str) -> None:
        """Leave (the rest of) the test out if the back end declares that it lacks ``feature``."""
        if self.lacks(feature):
            self._leave_out(feature)

    def declare(self, what: str, reason: str) -> None:
        """Count something the back end cannot do."""
        entry = (PROPERTY, (type(self).__name__, what, reason))
        if entry not in self._properties:
            self._properties.append(entry)

    def _leave_out(self, feature: str) -> NoReturn:
        pytest.skip(f"declared unsupported: {feature}: {self.unsupported[feature]}")
