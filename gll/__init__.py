"""gll: graph learning layers for PyTorch.

The public names are those of `public.py`. They are imported when the first of them is asked for: importing PyTorch,
SciPy and scikit-learn takes seconds, which `gll --help` and a mistake on the command line should not cost.
"""

import importlib
import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gll.public import *  # noqa: F403
    from gll.public import __all__ as __all__

try:
    __version__ = version("gll")
except PackageNotFoundError:  # a checkout on the path that is not installed
    import tomllib
    from pathlib import Path

    _project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    _told = tomllib.loads(_project.read_text(encoding="utf-8")) if _project.is_file() else {}
    _ours = _told.get("project", {})
    __version__ = str(_ours.get("version", "0.0.0")) if _ours.get("name") == "gll" else "0.0.0"


if not TYPE_CHECKING:  # else every name would pass for a checker of types

    def __getattr__(name: str) -> Any:
        """A name that is not here yet: a module of the package, or one of the public names, which then all come."""
        if name == "__all__" or (name.isidentifier() and not name.startswith("_")):
            if importlib.util.find_spec(f"gll.{name}") is not None:
                return importlib.import_module(f"gll.{name}")
            public = importlib.import_module("gll.public")
            if name == "__all__" or name in public.__all__:
                globals().update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
                return globals()[name]
        raise AttributeError(f"module 'gll' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("gll.public").__all__})
