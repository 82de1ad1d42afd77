# Type stub: the names of the module beside it.
from torchx._legacy_tracker import generate_filename as generate_filename
from torchx_specs.trackers.api import Lineage as Lineage
from torchx_specs.trackers.api import TrackerArtifact as TrackerArtifact
from torchx_specs.trackers.api import TrackerBase as TrackerBase
from torchx_specs.trackers.api import TrackerSource as TrackerSource
from torchx_tracker_fsspec.tracker import FsspecTracker as FsspecTracker
from torchx_tracker_fsspec.tracker import create as create
