"""Drop-in names: finds Pawl's module for `import nebulaml` and its like, without importing pawl.

pawl-compat.pth has this imported whenever Python starts: it needs only what the interpreter has
loaded by then, and no import may ever fail because of it. Two finders share the work. The provider
is last on sys.meta_path, so that whatever else is installed under a name wins. The listener is
first, since Python does not ask the last finder for a name that another one has found. It reports
the other package once, puts Pawl's first where the user chose that, and gives a submodule under
two names one module object. Any other name costs one lookup in a dict.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# Import name -> the module of ours that stands in for it. A name is listed once its module exists
# and has a stub in pawl/compat/stubs.
NAMES = {
    "adaptdl": "pawl.compat.adaptdl",
    "nebulaml": "pawl.compat.nebula",
    "smdistributed": "pawl.compat.smdistributed",
    "torch_nebula": "pawl.compat.nebula",
}
CHOICES = ("pawl", "other", "off")
VARIABLE = "PAWL_COMPAT"
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pawl-compat.conf")
STUBS = os.path.join("pawl", "compat", "stubs")

at_start = False  # True: this interpreter read pawl-compat.pth at its start
_reported: set[str] = set()  # names whose other package has been mentioned


def install(starting: bool = False) -> None:
    """Puts the finders in their places, unless they are there already."""
    global at_start
    at_start = at_start or starting
    if not any(isinstance(finder, (_Listener, _Provider)) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Listener())
        sys.meta_path.append(_Provider())


def settings() -> "list[tuple[str, str, str]]":
    """The user's choices, as (name, choice, where): those in the file, then those in the variable.

    Both hold entries like ``nebulaml=pawl``. The name is empty where a choice stands alone.
    """
    found = []
    for text, source in ((_read(), FILE), (os.environ.get(VARIABLE, ""), VARIABLE)):
        for setting in text.replace(",", " ").split():
            name, _, choice = setting.rpartition("=")
            found.append((name, choice, source))
    return found


def choices() -> "dict[str, tuple[str, str]]":
    """Name -> the choice in force, and where it was made.

    A choice without a name is for every name. Entries without a meaning are ignored, since this
    runs in the middle of an import; `pawl compat` names them.
    """
    found = {}
    for name, choice, source in settings():
        if choice in CHOICES and name in ("", *NAMES):
            found.update(dict.fromkeys([name] if name else NAMES, (choice, source)))
    return found


def _read() -> str:
    try:
        with open(FILE, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the usual case: the user has made no choice
        return ""


def _choice(name: str) -> "str | None":
    return choices().get(name, (None, ""))[0]


def find_other(name: str) -> "ModuleSpec | None":
    """The spec that other finders have for a top-level name, None if none has; our
    stubs do not count.
    """
    from importlib.machinery import PathFinder

    path = [entry for entry in sys.path if not entry.rstrip(os.sep).endswith(STUBS)]
    for finder in list(sys.meta_path):
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is not None and not isinstance(finder, (_Listener, _Provider)):
            spec = find_spec(name, path if finder is PathFinder else None)
            if spec is not None:
                return spec
    return None


def is_whole() -> bool:
    """Whether the package pawl is there; the leftovers of a removed one are no package."""
    from importlib.util import find_spec

    spec = sys.modules["pawl"].__spec__ if "pawl" in sys.modules else find_spec("pawl")
    return spec is not None and spec.origin is not None


def stand_in(name: str) -> None:
    """Called by a stub: puts the module that the stub's name stands for in its place."""
    from importlib.util import module_from_spec

    install()
    choice = _choice(name)
    spec = None if choice == "pawl" else find_other(name)
    if spec is None and choice == "off":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec = spec or _alias(name, NAMES[name])
    sys.modules[name] = module = module_from_spec(spec)
    if spec.loader is not None:
        spec.loader.exec_module(module)


class _Listener:
    """The finder that is first on sys.meta_path."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        root = name.partition(".")[0]
        if root not in NAMES:
            return None
        try:
            return self._listen(name, root)
        except Exception:  # the other finders answer, as if this one were not here
            return None

    def _listen(self, name: str, root: str) -> "ModuleSpec | None":
        if name != root:
            return self._submodule(name, root)
        choice = _choice(name)
        if choice == "pawl" and is_whole():
            return _alias(name, NAMES[name])
        if choice is None and name not in _reported:
            other = find_other(name)
            if other is not None:
                _report_other(name, other)
        return None

    def _submodule(self, name: str, root: str) -> "ModuleSpec | None":
        """The spec of a submodule. Along the parent's __path__ Python would load a
        second copy of it.
        """
        from importlib.util import find_spec

        ours = sys.modules.get(NAMES[root])
        if ours is None or sys.modules.get(root) is not ours or not hasattr(ours, "__path__"):
            return None
        real = NAMES[root] + name[len(root) :]
        return _alias(name, real) if find_spec(real) is not None else None


class _Provider:
    """The finder that is last on sys.meta_path: asked only when no other one knows the name."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        if name not in NAMES:
            return None
        try:
            if _choice(name) == "off" or not is_whole():
                return None
            # Another finder may stand after this one.
            return find_other(name) or _alias(name, NAMES[name])
        except Exception:
            return None


class _Loader:
    """Loads a module of ours under a second name: the same object, not a copy."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: "ModuleSpec") -> None:
        return None  # Python makes a module, which exec_module drops

    def exec_module(self, module: "ModuleType") -> None:
        from importlib import import_module

        name = module.__name__
        try:
            found = import_module(self.real)
        except Exception as reason:
            raise ImportError(
                f"{name} is Pawl's {self.real} here, which cannot be imported: {reason} "
                f"(`pawl compat use {name.partition('.')[0]} off` takes the name away)",
                name=name,
            ) from reason
        sys.modules[name] = found


def _alias(name: str, real: str) -> "ModuleSpec":
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, _Loader(real), origin=real)


def _report_other(name: str, other: "ModuleSpec") -> None:
    _reported.add(name)
    if os.environ.get("RANK", "0") != "0":  # rank 0 reports it for all ranks
        return
    import logging

    logging.getLogger("pawl").warning(
        "%s is the package in %s, not Pawl's; `pawl compat use %s pawl` changes that, "
        "`pawl compat use %s other` keeps it and ends this message",
        name,
        where(other),
        name,
        name,
    )


def where(spec: "ModuleSpec") -> str:
    """The file of a module; a directory of one that has none."""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "an unknown place")
