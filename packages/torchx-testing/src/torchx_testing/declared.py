"""Skips the tests of features that a back end does not support, and reports them with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NoReturn

import pytest

#: The property of a test report that lists the skipped features.
PROPERTY = "torchx_declared_unsupported"


class Suite:
    """Base of the conformance suites.

    Attributes:
        features: The features that a subclass may declare as unsupported.
        unsupported: The features that the back end does not support, with the reasons.
    """

    features: ClassVar[frozenset[str]] = frozenset()
    unsupported: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _declarations(self, request: pytest.FixtureRequest) -> None:
        from torchx_specs.errors import nearest

        self._properties = request.node.user_properties
        for name in self.unsupported.keys() - self.features:
            pytest.fail(
                f"{type(self).__name__}.unsupported: unknown feature '{name}';"
                f"{nearest(name, self.features)} features: {', '.join(sorted(self.features))}"
            )

    def lacks(self, feature: str) -> bool:
        """Return True if ``feature`` is declared unsupported; the test report then contains it."""
        assert feature in self.features, f"no such feature: {feature}"
        if feature not in self.unsupported:
            return False
        self.declare(feature, self.unsupported[feature])
        return True

    def needs(self, feature: str) -> None:
        """Skip the rest of the test if ``feature`` is declared unsupported."""
        if self.lacks(feature):
            self._skip(feature)

    def declare(self, what: str, reason: str) -> None:
        """Record in the test report that the back end does not support something.

        Args:
            what: A feature, or another text, such as the name of a value.
            reason: Why the back end does not support it.
        """
        entry = (PROPERTY, (type(self).__name__, what, reason))
        if entry not in self._properties:
            self._properties.append(entry)

    def _skip(self, feature: str) -> NoReturn:
        pytest.skip(f"declared unsupported: {feature}: {self.unsupported[feature]}")
