"""The APIs whose objects run apps, behind one interface: ``batch``, ``jobset``, ``volcano``."""
