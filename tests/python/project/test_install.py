"""What pip and Meson install works elsewhere: package, program, and the library for C programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = "#include <pawl/err.h>\nint main(void) { return pawl_err_name(-1)[0] != 'P'; }\n"


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Runs a command that must succeed, away from the sources. Returns its output."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PATH": tools, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def public_functions() -> set[str]:
    """Returns the functions that include/pawl declares."""
    names = set()
    for header in (ROOT / "include/pawl").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        text = re.sub(r"^\s*#(.*\\\n)*.*$", "", text, flags=re.M)
        for statement in re.split(r"[;{}]", text):
            match = re.search(r"\b(pawl_\w+)\(", statement)
            if match and not re.search(r"\b(typedef|static)\b", statement):
                names.add(match[1])
    return names


def exported(library: Path) -> set[str]:
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1] for line in lines}


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the wheel; no source is near."""
    folder = tmp_path_factory.mktemp("target")
    run(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", folder, wheel)
    return folder


def test_package_runs_from_a_target_folder(target: Path) -> None:
    where = run(
        sys.executable,
        "-c",
        "import pawl, pawl._core; print(pawl.__file__)",
        env={"PYTHONPATH": str(target)},
        cwd=target,
    )
    assert where == str(target / "pawl/__init__.py")
    assert (target / "pawl/py.typed").is_file()


def test_every_module_is_installed(target: Path) -> None:
    sources = {path.relative_to(ROOT / "python") for path in (ROOT / "python").rglob("*.py")}
    assert sources <= {path.relative_to(target) for path in target.rglob("*.py")}


def test_program_runs_from_a_target_folder(target: Path) -> None:
    assert run(target / "bin/pawl", "--version", cwd=target).startswith("pawl ")


def test_wheel_has_the_library_for_c_programs(target: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    package = target / "pawl"
    flags = [f"-I{package / 'include'}", f"-L{package}", "-lpawl", f"-Wl,-rpath,{package}"]
    run("gcc", tmp_path / "a.c", "-o", tmp_path / "a", *flags)
    run(tmp_path / "a")


def test_library_exports_what_the_headers_declare_and_nothing_else(target: Path) -> None:
    assert public_functions()
    # A missing function's header lacks `#pragma GCC visibility push(default)` around it.
    assert exported(target / "pawl/libpawl.so") == public_functions()


def test_extension_exports_its_entry_alone(target: Path) -> None:
    (extension,) = (target / "pawl").glob("_core.*.so")
    assert exported(extension) == {"PyInit__core"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root that meson installed build/gcc into."""
    build = ROOT / "build/gcc"
    if not (build / "build.ninja").is_file():
        pytest.skip("build/gcc is not there: `make test` builds it before the Python tests")
    root = tmp_path_factory.mktemp("root")
    run("meson", "install", "-C", build, "--destdir", root)
    return root


def compile_with_pkg_config(source: Path, program: Path, root: Path) -> None:
    (library,) = root.rglob("libpawl.so")
    (config,) = root.rglob("pawl.pc")
    env = {"PKG_CONFIG_PATH": str(config.parent), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    flags = run("pkg-config", "--cflags", "--libs", "pawl", env=env).split()
    run(
        "gcc",
        "-O2",
        "-Wall",
        "-Werror",
        source,
        "-o",
        program,
        *flags,
        f"-Wl,-rpath,{library.parent}",
    )


def test_meson_installs_a_versioned_library(installed: Path, tmp_path: Path) -> None:
    (library,) = installed.rglob("libpawl.so")
    assert os.readlink(library) == "libpawl.so.0"
    (tmp_path / "a.c").write_text(SOURCE)
    compile_with_pkg_config(tmp_path / "a.c", tmp_path / "a", installed)
    run(tmp_path / "a")


def test_library_needs_no_database_and_no_yaml(target: Path, installed: Path) -> None:
    (versioned,) = installed.rglob("libpawl.so")
    (extension,) = (target / "pawl").glob("_core.*.so")
    for library in (versioned, target / "pawl/libpawl.so", extension):
        needed = set(re.findall(r"\(NEEDED\).*\[lib([\w+-]+)\.so", run("readelf", "-d", library)))
        buckets = {"curl", "expat", "jansson", "crypto", "ssl"}
        assert needed <= {"uring", "isal", "nlopt", "m", "c", "dl", "pthread"} | buckets, library


def test_a_c_program_goes_on_where_it_was(installed: Path, tmp_path: Path) -> None:
    heat = tmp_path / "heat"
    compile_with_pkg_config(ROOT / "examples/c/heat.c", heat, installed)
    (program,) = (path for path in installed.rglob("bin/pawl"))

    def simulate(root: str, steps: int) -> list[str]:
        return run(
            heat, tmp_path / root, str(steps), program, env={"PAWL_JOB_ID": root}
        ).splitlines()

    assert simulate("parted", 200)[0] == "begins at step 0"
    begun, end = simulate("parted", 300)
    assert begun == "begins at step 200"
    assert end == simulate("whole", 300)[1]
