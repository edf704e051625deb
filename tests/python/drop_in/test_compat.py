"""Drop-in names: found without pawl, by every kind of installation; the real package wins.

Each test starts interpreters of its own. The names stand for a placeholder here: a package with a
submodule, put in the place of pawl.compat.nebula.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import _pawl_compat
import program
from conftest import building
from pawl import compat

ROOT = Path(__file__).parents[3]
LIMIT_S = 120
PLACEHOLDER = """
loads = globals().get("loads", 0) + 1
class Checkpoint:
    pass
"""
CONTENT = "import sys; print(sys.modules['nebulaml'].__name__)"
LOADED = "import sys; print(sorted(m for m in sys.modules if m.split('.')[0] == 'pawl'))"
FOREIGN = "whose = 'foreign'\n"


def python(
    interpreter: Path | str, *args: str, cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    clean = program.clean_env()
    del clean["PYTHONPATH"]
    return subprocess.run(
        [str(interpreter), *args],
        env={**clean, "PYTHONDONTWRITEBYTECODE": "1", **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def output(interpreter: Path | str, *args: str, cwd: Path, **env: str) -> str:
    """Returns the output of an interpreter that must succeed without a complaint."""
    done = python(interpreter, *args, cwd=cwd, **env)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.strip()


def pip(*args: str | Path, **env: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "-q", *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def put_placeholder(packages: Path) -> None:
    home = packages / "pawl/compat"
    (home / "nebula.py").unlink(missing_ok=True)
    shutil.rmtree(home / "nebula", ignore_errors=True)
    (home / "nebula").mkdir()
    (home / "nebula/__init__.py").write_text(PLACEHOLDER)
    (home / "nebula/part.py").write_text("class Part:\n    pass\n")
    (home / "nebula/torn.py").write_text("raise ValueError('torn')\n")


class Venv:
    """Makes a virtual environment without pip and torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin/python"
        (self.packages,) = folder.glob("lib/python3.*/site-packages")

    def run(self, *args: str, **env: str) -> str:
        return output(self.python, *args, cwd=self.folder, **env)

    def fail(self, *args: str, **env: str) -> str:
        done = python(self.python, *args, cwd=self.folder, **env)
        assert done.returncode != 0
        return done.stderr

    def told(self, *args: str, **env: str) -> tuple[str, str]:
        done = python(self.python, *args, cwd=self.folder, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    def put_foreign(self, name: str = "nebulaml") -> None:
        (self.packages / name).mkdir()
        (self.packages / name / "__init__.py").write_text(FOREIGN)
        info = self.packages / f"{name}-7.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 7.1\n")
        (info / "top_level.txt").write_text(f"{name}\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")


def make_venv(folder: Path) -> Venv:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Venv(folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """A venv with the wheel installed, for tests that change nothing in it."""
    venv = make_venv(tmp_path_factory.mktemp("compat") / "venv")
    pip("--python", venv.python, "install", "--no-index", "--no-deps", wheel)
    put_placeholder(venv.packages)
    return venv


@pytest.fixture
def own(installed: Venv, tmp_path: Path) -> Venv:
    """A copy of the venv that a test may change."""
    shutil.copytree(installed.folder, tmp_path / "venv", symlinks=True)
    return Venv(tmp_path / "venv")


# ---- the table and the stubs ----


def test_each_name_has_a_stub() -> None:
    stubs = {path.stem for path in (ROOT / "python/pawl/compat/stubs").glob("*.py")}
    assert stubs == set(_pawl_compat.NAMES)


def test_names_do_not_hide_each_other() -> None:
    assert {"nebulaml", "torch_nebula"} <= set(_pawl_compat.NAMES)
    assert not any("." in name for name in _pawl_compat.NAMES)
    assert all(real.startswith("pawl.compat.") for real in _pawl_compat.NAMES.values())


# ---- an installed wheel ----


@pytest.mark.parametrize("flags", [[], ["-I"], ["-E"], ["-s"], ["-O"]])
def test_both_names_are_one_module(installed: Venv, flags: list[str]) -> None:
    code = """
import nebulaml, torch_nebula, pawl.compat.nebula as real, importlib
assert nebulaml is torch_nebula is real
assert real.__spec__.name == real.__name__ == "pawl.compat.nebula" and real.loads == 1
assert importlib.reload(nebulaml) is real and real.loads == 2 and nebulaml is torch_nebula
"""
    installed.run(*flags, "-c", code)


def test_a_plain_start_loads_nothing_of_pawl(installed: Venv) -> None:
    assert installed.run("-c", LOADED) == "[]"
    more = "import json, email, http.client, importlib.metadata\n"
    more += "try:\n import nebulamlx\nexcept ImportError: pass\n"
    assert installed.run("-c", more + LOADED) == "[]"


def test_asking_whether_a_name_is_there_loads_nothing(installed: Venv) -> None:
    code = "import importlib.util as u; assert u.find_spec('nebulaml'); assert not u.find_spec('x')"
    assert installed.run("-c", f"{code}\n{LOADED}") == "[]"


def test_what_starts_imports_next_to_nothing(installed: Venv) -> None:
    with_it = set(
        json.loads(installed.run("-c", "import json,sys;print(json.dumps([*sys.modules]))"))
    )
    (installed.packages / "pawl-compat.pth").rename(installed.packages / "pawl-compat.off")
    try:
        without = set(
            json.loads(installed.run("-c", "import json,sys;print(json.dumps([*sys.modules]))"))
        )
    finally:
        (installed.packages / "pawl-compat.off").rename(installed.packages / "pawl-compat.pth")
    assert with_it - without == {"_pawl_compat"}


def test_places_on_the_meta_path(installed: Venv) -> None:
    code = "import sys; print(type(sys.meta_path[0]).__name__, type(sys.meta_path[-1]).__name__)"
    assert installed.run("-c", code) == "_Listener _Provider"
    twice = "import _pawl_compat, pawl, sys; _pawl_compat.install(); n = len(sys.meta_path)\n"
    assert installed.run("-c", twice + "print(n)") == installed.run(
        "-c", "import sys; print(len(sys.meta_path))"
    )


def test_submodules(installed: Venv) -> None:
    code = """
import nebulaml.part, torch_nebula.part, pawl.compat.nebula.part as real
assert nebulaml.part is torch_nebula.part is real and real.__name__ == "pawl.compat.nebula.part"
from torch_nebula.part import Part
assert Part is real.Part
"""
    installed.run("-c", code)
    missing = installed.fail("-c", "import nebulaml.missing")
    assert "ModuleNotFoundError: No module named 'nebulaml.missing'" in missing
    assert "ValueError: torn" in (torn := installed.fail("-c", "import nebulaml.torn"))
    assert "ImportError: nebulaml.torn is Pawl's pawl.compat.nebula.torn" in torn


def test_a_pickle_of_either_name_loads(installed: Venv) -> None:
    code = """
import pickle
for name in (b"nebulaml", b"torch_nebula", b"pawl.compat.nebula"):
    assert pickle.loads(b"c" + name + b"\\nCheckpoint\\n.").__module__ == "pawl.compat.nebula"
import nebulaml
assert pickle.loads(pickle.dumps(nebulaml.Checkpoint)) is nebulaml.Checkpoint
"""
    installed.run("-c", code)


def test_a_spawned_process_finds_the_names(installed: Venv, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text("""
import multiprocessing
def child(kind):
    assert kind.__module__ == "pawl.compat.nebula"
if __name__ == "__main__":
    import nebulaml
    p = multiprocessing.get_context("spawn").Process(target=child, args=(nebulaml.Checkpoint,))
    p.start(); p.join(); print(p.exitcode)
""")
    assert installed.run(str(script)) == "0"


def test_without_site_there_is_no_installation(installed: Venv) -> None:
    assert "No module named 'nebulaml'" in installed.fail("-S", "-c", "import nebulaml")
    path = str(installed.packages)
    code = f"import pawl, nebulaml\n{CONTENT}"
    assert installed.run("-S", "-c", code, PYTHONPATH=path) == "pawl.compat.nebula"


# ---- another package of that name ----


def test_the_real_package_wins_and_is_told_of_once(own: Venv) -> None:
    own.put_foreign()
    code = "import nebulaml; print(nebulaml.whose)\nimport importlib.util, sys\n"
    code += "del sys.modules['nebulaml']; importlib.util.find_spec('nebulaml')"
    said, told = own.told("-c", code)
    assert said == "foreign"
    assert told.count("\n") == 1 and "`pawl compat use nebulaml pawl`" in told
    assert str(own.packages / "nebulaml/__init__.py") in told
    said, told = own.told("-c", code, RANK="3")  # the other ranks leave the message to rank 0
    assert (said, told) == ("foreign", "")
    assert own.run("-c", LOADED) == "[]"  # nothing imported the name, so nothing is logged
    assert own.run("-c", "import torch_nebula as t; print(t.__name__)") == "pawl.compat.nebula"


@pytest.mark.parametrize("where", ["front", "behind"])
def test_a_package_found_by_a_finder_wins_too(own: Venv, where: str) -> None:
    """A finder, before or after ours on sys.meta_path, finds the package, as with editable
    installations."""
    (own.folder / "elsewhere").mkdir()
    (own.folder / "elsewhere/nebulaml.py").write_text(FOREIGN)
    place = "insert(0, F())" if where == "front" else "append(F())"
    code = f"""
import sys, importlib.util
class F:
    def find_spec(self, name, path=None, target=None):
        if name == "nebulaml":
            return importlib.util.spec_from_file_location(name, "elsewhere/nebulaml.py")
sys.meta_path.{place}
import nebulaml; print(nebulaml.whose)
"""
    said, told = own.told("-c", code)
    assert said == "foreign"
    assert where == "front" or "`pawl compat use nebulaml pawl`" in told


def test_switching(own: Venv) -> None:
    def use(name: str, choice: str) -> None:
        assert own.run("-m", "pawl.compat", "use", name, choice) == ""

    own.put_foreign()
    whose = "import nebulaml as n; print(getattr(n, 'whose', n.__name__))"
    use("nebulaml", "pawl")
    assert own.run("-c", whose) == "pawl.compat.nebula"
    use("nebulaml", "other")
    assert own.run("-c", whose) == "foreign"  # the message is not repeated
    use("torch_nebula", "off")
    assert "No module named 'torch_nebula'" in own.fail("-c", "import torch_nebula")
    assert own.run("-c", "import torch_nebula", PAWL_COMPAT="torch_nebula=other") == ""
    assert own.run("-c", whose, PAWL_COMPAT="pawl") == "pawl.compat.nebula"  # applies to all names
    assert (own.packages / "pawl-compat.conf").read_text() == "nebulaml=other\ntorch_nebula=off\n"
    use("nebulaml", "off")
    assert own.run("-c", whose) == "foreign"  # "off" removes Pawl's names, not the foreign package
    done = python(
        own.python,
        "-m",
        "pawl.compat",
        "use",
        "nebulaml",
        "pawl",
        cwd=own.folder,
        PAWL_COMPAT="off",
    )
    assert done.returncode == 0 and "PAWL_COMPAT in the environment still says off" in done.stderr


def test_listing(own: Venv) -> None:
    own.put_foreign()
    env = {"PAWL_COMPAT": "torch_nebula=off,nebulaml=on"}
    document = json.loads(own.run("-m", "pawl.compat", "--json", **env))
    assert document["found_by"] == "start" and document["strange"] == ["PAWL_COMPAT: nebulaml=on"]
    path = str(own.packages / "nebulaml/__init__.py")
    rows = {row.pop("name"): row for row in document["names"]}
    assert rows["nebulaml"] == {
        "provider": "other",
        "path": path,
        "package": "nebulaml 7.1",
        "choice": None,
        "chosen_in": None,
    }
    assert (rows["torch_nebula"]["provider"], rows["torch_nebula"]["choice"]) == ("none", "off")
    text = own.run("-m", "pawl.compat", **env)
    assert f"{path} (nebulaml 7.1), not Pawl" in text and "nobody; off, says PAWL_COMPAT" in text
    assert "not understood, in PAWL_COMPAT: nebulaml=on" in text
    text = own.run("-m", "pawl.compat", PAWL_COMPAT="nebulaml=pawl")
    assert f"Pawl, not {path}" in text
    code = (
        "import sys, pawl.compat as c; c.names(); print([n for n in sys.modules if 'nebula' in n])"
    )
    assert own.run("-c", code) == "[]"


def test_the_program_does_the_same(own: Venv) -> None:
    env = program.clean_env()
    del env["PYTHONPATH"]
    where = ("--python", own.python)
    done = program.run("compat", *where, "--json", cwd=own.folder, env=env)
    assert json.loads(done.stdout)["python"] == str(own.python)
    assert program.run("compat", *where, "use", "nebulaml", "off", env=env).returncode == 0
    done = program.run("compat", *where, env=env)
    assert "nebulaml        nobody; off" in done.stdout and done.returncode == 0
    gone = program.run("compat", "--python", "/nowhere/python", env=env)
    assert gone.returncode == 3 and "/nowhere/python" in gone.stderr


def test_a_choice_that_cannot_be_kept_names_the_variable(own: Venv) -> None:
    (own.packages / "pawl-compat.conf").mkdir()  # even root cannot replace a folder
    told = own.fail("-m", "pawl.compat", "use", "nebulaml", "off")
    assert "PAWL_COMPAT=nebulaml=off in the environment does the same" in told
    assert not list(own.packages.glob("pawl-compat.conf.*"))
    assert own.run("-c", f"import nebulaml\n{CONTENT}") == "pawl.compat.nebula"


def test_a_folder_of_that_name_is_named(own: Venv, tmp_path: Path) -> None:
    """Python takes a folder without __init__.py for a package; Pawl at least reports it."""
    (own.folder / "nebulaml").mkdir()
    _, told = own.told("-c", "import nebulaml")
    assert str(own.folder / "nebulaml") in told and "use nebulaml pawl" in told
    assert own.run("-c", f"import nebulaml\n{CONTENT}", PAWL_COMPAT="pawl") == "pawl.compat.nebula"


# ---- broken and half removed ----


def break_package(packages: Path, how: str) -> None:
    if how == "no pawl":
        shutil.rmtree(packages / "pawl")
    elif how == "empty folder":
        shutil.rmtree(packages / "pawl")
        (packages / "pawl/__pycache__").mkdir(parents=True)
    elif how == "no finder":
        (packages / "_pawl_compat.py").unlink()
        shutil.rmtree(packages / "__pycache__", ignore_errors=True)
    elif how == "torn finder":
        (packages / "_pawl_compat.py").write_text("import sys\nthis is not Python\n")
    elif how == "no names":
        (packages / "_pawl_compat.py").write_text("raise RuntimeError('broken')\n")
    elif how == "torn pawl":
        (packages / "pawl/__init__.py").write_text("raise RuntimeError('broken')\n")
    elif how == "torn module":
        (packages / "pawl/compat/nebula/__init__.py").write_text("raise RuntimeError('broken')\n")
    elif how == "torn choices":
        (packages / "pawl-compat.conf").write_bytes(b"\xff\xfe\0nebulaml=\n=off=\n,,=")


BREAKS = ["no pawl", "empty folder", "no finder", "torn finder", "no names", "torn pawl"]
BREAKS += ["torn module", "torn choices"]


@pytest.mark.parametrize("how", BREAKS)
def test_nothing_else_breaks(own: Venv, how: str) -> None:
    break_package(own.packages, how)
    own.run("-c", "import json, email, importlib.util")
    done = python(own.python, "-c", "import nebulaml", cwd=own.folder)
    last = done.stderr.strip().rpartition("\n")[2]
    if how == "torn choices":
        assert done.returncode == 0
    elif how in ("torn pawl", "torn module"):
        assert "ImportError: nebulaml is Pawl's" in last and "broken" in last
        assert "`pawl compat use nebulaml off`" in last
    else:
        assert last == "ModuleNotFoundError: No module named 'nebulaml'"


@pytest.mark.parametrize("how", ["no pawl", "no names", "torn pawl"])
def test_torch_is_imported_all_the_same(own: Venv, how: str) -> None:
    break_package(own.packages, how)
    (own.packages / "zz-torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = "import torch; print(torch.ones(2).sum().item())"
    assert own.run("-W", "ignore", "-c", code) == "2.0"


# ---- installations whose .pth file nobody reads ----


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compat-target") / "lib"
    pip("install", "--no-index", "--no-deps", "--target", folder, wheel)
    put_placeholder(folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """A venv with no packages."""
    return make_venv(tmp_path_factory.mktemp("compat-bare") / "venv")


@pytest.fixture(params=["folder", "zip"])
def library(request: pytest.FixtureRequest, target: Path, tmp_path: Path) -> Path:
    """The folder that `pip install --target` made, and the same as a zip."""
    if request.param == "folder":
        return target
    zipped = tmp_path / "lib.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        for path in sorted(target.rglob("*.py")):
            archive.write(path, path.relative_to(target))
    return zipped


def test_a_target_is_found_after_import_pawl(bare: Venv, library: Path) -> None:
    path = str(library)
    assert "No module named" in bare.fail("-c", "import nebulaml", PYTHONPATH=path)
    code = f"import pawl, nebulaml, torch_nebula\n{CONTENT}"
    assert bare.run("-c", code, PYTHONPATH=path) == "pawl.compat.nebula"
    told = bare.run("-m", "pawl.compat", PYTHONPATH=path)
    assert "read no pawl-compat.pth" in told
    assert f"PYTHONPATH={library / 'pawl/compat/stubs'}" in told


@pytest.mark.parametrize("name", ["base.pth", "zz-base.pth"])  # sorted before and after ours
def test_a_folder_that_a_pth_file_names(bare: Venv, installed: Venv, name: str) -> None:
    """Venvs may share the packages of another one: pawl.compat says why scripts do not find the
    names, and its advice helps."""
    pth = bare.packages / name
    pth.write_text(f"# another venv's\n{installed.packages}\n")
    try:
        assert "No module named" in bare.fail("-c", "import nebulaml")
        told = bare.run("-m", "pawl.compat")
        assert f"{pth} names the folder of Pawl" in told
        assert json.loads(bare.run("-m", "pawl.compat", "--json"))["named_by"] == str(pth)
        (line,) = re.findall(r"these at once: (import .*)$", told)
        with pth.open("a") as file:
            file.write(line + "\n")
        assert bare.run("-c", f"import nebulaml\n{CONTENT}") == "pawl.compat.nebula"
        assert "names the folder" not in bare.run("-m", "pawl.compat")
    finally:
        pth.unlink()
    assert json.loads(installed.run("-m", "pawl.compat", "--json"))["named_by"] is None


def test_a_target_is_found_by_the_stubs(bare: Venv, library: Path) -> None:
    path = f"{library}{os.pathsep}{library / 'pawl/compat/stubs'}"
    code = """
import nebulaml, torch_nebula, sys, pawl.compat.nebula as real
import nebulaml.part, torch_nebula.part, importlib
assert nebulaml is torch_nebula is real and nebulaml.part is torch_nebula.part
assert real.loads == 1 and importlib.reload(nebulaml) is real
"""
    for first in ("", "import pawl\n"):
        bare.run("-c", first + code, PYTHONPATH=path)
    document = json.loads(bare.run("-m", "pawl.compat", "--json", PYTHONPATH=path))
    assert document["found_by"] == "stubs"
    assert {row["provider"] for row in document["names"]} == {"pawl"}


def test_stubs_give_way_to_the_real_package(bare: Venv, target: Path, tmp_path: Path) -> None:
    (tmp_path / "nebulaml").mkdir()
    (tmp_path / "nebulaml/__init__.py").write_text(FOREIGN + "from . import more\n")
    (tmp_path / "nebulaml/more.py").write_text("")
    path = os.pathsep.join(map(str, [target / "pawl/compat/stubs", target, tmp_path]))
    whose = "import nebulaml as n; print(getattr(n, 'whose', n.__name__))"
    assert bare.run("-c", whose, PYTHONPATH=path) == "foreign"
    assert bare.run("-c", whose, PYTHONPATH=path, PAWL_COMPAT="pawl") == "pawl.compat.nebula"
    missing = bare.fail("-c", "import torch_nebula", PYTHONPATH=path, PAWL_COMPAT="off")
    assert "ModuleNotFoundError: No module named 'torch_nebula'" in missing
    said, told = bare.told("-c", f"import pawl\n{whose}", PYTHONPATH=path)
    assert said == "foreign" and "use nebulaml pawl" in told


@building()  # the build runs again at each import
def test_an_editable_installation(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "-C"]
    options.append(f"build-dir={ROOT / 'build/wheel'}")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    backend = sysconfig.get_path("purelib")
    pip(
        "--python", venv.python, "install", *options, "-e", ROOT, PATH=tools, PYTHONPATH=backend
    )  # fmt: skip
    env = {"PATH": tools}
    assert venv.run("-c", LOADED, **env) == "[]"
    code = "import pawl, sys, importlib.util; print(importlib.util.find_spec('nebulaml').origin)"
    assert venv.run("-c", code, **env) == "pawl.compat.nebula"
    stubs = str(ROOT / "python/pawl/compat/stubs")
    assert f"PYTHONPATH={stubs}" in venv.run("-m", "pawl.compat", **env)
    document = json.loads(venv.run("-m", "pawl.compat", "--json", PYTHONPATH=stubs, **env))
    assert document["found_by"] == "stubs"
    (tmp_path / "nebula.py").write_text(PLACEHOLDER)
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("pawl.compat.nebula", {str(tmp_path / "nebula.py")!r})
class F:
    def find_spec(self, name, path=None, target=None):
        return spec if name == "pawl.compat.nebula" else None
sys.meta_path.insert(0, F())
import nebulaml, torch_nebula
assert nebulaml is torch_nebula
{CONTENT}
"""
    assert venv.run("-c", code, PYTHONPATH=stubs, **env) == "pawl.compat.nebula"


# ---- in this process ----


def test_use_refuses_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_pawl_compat, "FILE", str(tmp_path / "conf"))
    with pytest.raises(ValueError, match="nebulaml"):
        compat.use("numpy", "off")
    with pytest.raises(ValueError, match="pawl, other, off"):
        compat.use("nebulaml", "on")
    assert not (tmp_path / "conf").exists()
