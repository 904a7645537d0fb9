"""The report's HTML: figures and tables put into one page without outside parts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.evaluation.report.document import Document
from vtrim.evaluation.report.explorer import static_sizes
from vtrim.evaluation.report.rules import percent

HERE = Path(__file__).parent
SCRIPTS = ("page.js", "explorer.js")
READOUTS = {
    "k": "size k",
    "coverage": "coverage C(k)",
    "heldout": "held-out C(k)",
    "reduction": "FLOPs saved R(k)",
    "utility": "utility U(k)",
    "speed": "tokens/s",
    "misses": "first miss",
}


def html(document: Document) -> str:
    """The page as text. Everything from the run is escaped."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    plots = (plot for section in document.sections for plot in section.plots)
    return environment.get_template("page.html.j2").render(
        version=__version__,
        document=document,
        **_explorer_parts(document),
        figures_json=script_json({plot.name: plot.figure for plot in plots}),
        plotly_js=get_plotlyjs(),
        page_js="\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS),
        page_css=(HERE / "page.css").read_text(encoding="utf-8"),
    )


def _explorer_parts(document: Document) -> dict[str, Any]:
    """What the template of the slider reads."""
    sizes = document.sizes
    if sizes is None:
        return {"explorer": None}
    return {
        "explorer": sizes,
        "explorer_json": script_json(sizes),
        "readouts": [(name, label) for name, label in READOUTS.items() if name in sizes],
        "static_sizes": static_sizes(sizes),
        "reasons": document.reasons,
        "percent": percent,
    }


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever text it holds."""
    text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def finite(value: Any) -> Any:
    """The same with None for each number that JSON does not know, e.g. a diverged loss."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(inner) for inner in value]
    return value
