"""The minors as `go` is told of them."""

from pathlib import Path

from makeway.dev.minors import DEFAULT, MINORS, overlay
from makeway.dev.paths import CHECKOUT


def test_the_default_minor_replaces_nothing() -> None:
    assert overlay(DEFAULT) == {"Replace": {}}


def test_an_overlay_replaces_what_each_module_has_of_the_minor(tmp_path: Path) -> None:
    for name in ("go.mod", "go-1.36.mod", "go-1.36.sum"):
        (tmp_path / name).touch()
    (minor,) = (one for one in MINORS if one.name == "1.36")

    assert overlay(minor, [tmp_path, tmp_path / "without"]) == {
        "Replace": {
            f"{tmp_path}/go.mod": f"{tmp_path}/go-1.36.mod",
            f"{tmp_path}/go.sum": f"{tmp_path}/go-1.36.sum",
        }
    }


def test_every_other_minor_replaces_the_plugins_modules() -> None:
    for minor in MINORS[1:]:
        assert f"{CHECKOUT}/plugin/go.mod" in overlay(minor)["Replace"]
