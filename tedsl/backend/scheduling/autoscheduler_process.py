"""One of Halide's autoschedulers in a process of its own: `python -m` this module, and `FOLDER`.

The plugins end their process where they meet what they did not expect. `FOLDER` holds the pipeline and what is asked
for; the scheduled pipeline, or the text of an error, is written there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import halide as hl

from tedsl.backend.scalars.types import TYPES

__all__ = ["main"]


def main(folder: Path) -> None:
    """Schedule `pipeline` as `request.json` says, to `scheduled` and `schedule.txt`, or `error.txt`."""
    request = json.loads((folder / "request.json").read_text())
    try:
        hl.load_plugin(request["plugin"])
        pipeline = hl.deserialize_pipeline((folder / "pipeline").read_bytes(), _parameters(request))
        params = hl.AutoschedulerParams(request["name"], request["options"])
        result = pipeline.apply_autoscheduler(hl.Target(request["target"]), params)
        (folder / "schedule.txt").write_text(result.schedule_source)
        (folder / "scheduled").write_bytes(hl.serialize_pipeline(pipeline))
    except (hl.HalideError, RuntimeError) as error:
        (folder / "error.txt").write_text(str(error))


def _parameters(request: dict[str, Any]) -> dict[str, Any]:
    """The inputs with their sizes, which are not part of a pipeline."""
    made: dict[str, Any] = {}
    for name, dtype, extents in request["images"]:
        image = hl.ImageParam(TYPES[dtype], len(extents), name)
        if extents:
            image.set_estimates([(0, n) for n in extents])
        made[name] = image.parameter()
    for name, dtype, value in request["scalars"]:
        scalar = hl.Param(TYPES[dtype], name)
        scalar.set_estimate(value)
        made[name] = scalar.parameter()
    return made


if __name__ == "__main__":
    main(Path(sys.argv[1]))
