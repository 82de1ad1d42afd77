"""Skips the tests of features that a backend does not support, and reports them with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

#: The property of a test report that lists the skipped features.
PROPERTY = "torchx_declared_unsupported"


class Suite:
    """Base of the conformance suites.

    Attributes:
        kind: What the suite tests, such as ``scheduler``.
        tested_name: Name of the tested object in reports; empty means the name of the class.
        features: The features that a subclass may declare as unsupported.
        unsupported: The features that the backend does not support, with the reasons. A suite may
            add the declarations of the tested object: see :meth:`declared`.
    """

    kind: ClassVar[str] = ""
    tested_name: ClassVar[str] = ""
    features: ClassVar[frozenset[str]] = frozenset()
    unsupported: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _declarations(self, request: pytest.FixtureRequest) -> None:
        from torchx_specs.errors import nearest

        self._request = request
        for name in self.unsupported.keys() - self.features:
            pytest.fail(
                f"{type(self).__name__}.unsupported: unknown feature '{name}';"
                f"{nearest(name, self.features)} features: {', '.join(sorted(self.features))}"
            )

    @classmethod
    def subject(cls) -> str:
        """Return the name of the tested object, for reports."""
        return cls.tested_name or cls.__name__

    def declared(self) -> Mapping[str, str]:
        """Return the features that the backend does not support, with the reasons."""
        return self.unsupported

    def lacks(self, feature: str) -> bool:
        """Return True if ``feature`` is declared unsupported, and record this in the report."""
        assert feature in self.features, f"no such feature: {feature}"
        declared = self.declared()
        if feature not in declared:
            return False
        self.declare(feature, declared[feature])
        return True

    def needs(self, *features: str) -> None:
        """Skip the rest of the test if one of the features is declared unsupported."""
        for feature in filter(self.lacks, features):
            pytest.skip(f"declared unsupported: {feature}: {self.declared()[feature]}")

    def declare(self, what: str, reason: str) -> None:
        """Record in the test report that the backend does not support something.

        Args:
            what: A feature, or another text, such as the name of a value.
            reason: Why the backend does not support it.
        """
        entry = (PROPERTY, (type(self).__name__, what, reason))
        if entry not in self._request.node.user_properties:
            self._request.node.user_properties.append(entry)
