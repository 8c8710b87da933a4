"""Settings: declared once; flags, environment and YAML follow."""

from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from kubetide.config import Doc, Settings, load, options
from kubetide.errors import SettingsError
from kubetide.flags import parse_flags
from kubetide.settings import SECTIONS


class Colour(Enum):
    RED = "Red"
    BLUE = "Blue"


class Sample(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "sample"

    period: Annotated[timedelta, Doc("How often.", flag="upstream-period", aliases=("old-period",))] = timedelta(
        seconds=15
    )
    quiet: Annotated[bool, Doc("Say nothing.")] = False
    names: Annotated[tuple[str, ...], Doc("Who.")] = ()
    share: Annotated[float | None, Doc("How much.")] = None
    colour: Annotated[Colour, Doc("Which.")] = Colour.RED
    folder: Annotated[Path, Doc("Where.")] = Path("/var")


KNOWN = {"sample": options(Sample)}


def parse(*words: str) -> Sample:
    return load(Sample, flags=parse_flags(words, KNOWN).by_section["sample"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("--upstream-period=1m30s",), {"period": timedelta(seconds=90)}, id="equals"),
        pytest.param(("-upstream-period=1m",), {"period": timedelta(minutes=1)}, id="one-dash"),
        pytest.param(("--upstream-period", "1m"), {"period": timedelta(minutes=1)}, id="separate"),
        pytest.param(("--old-period=1m",), {"period": timedelta(minutes=1)}, id="alias"),
        pytest.param(("--period=1m",), {"period": timedelta(minutes=1)}, id="own-name"),
        pytest.param(("--upstream_period=1m",), {"period": timedelta(minutes=1)}, id="underscore"),
        pytest.param(("--quiet",), {"quiet": True}, id="bare-switch"),
        pytest.param(("--quiet=false",), {"quiet": False}, id="switch-off"),
        pytest.param(("--names=a, b,,c",), {"names": ("a", "b", "c")}, id="list"),
        pytest.param(("--share=0.5",), {"share": 0.5}, id="optional"),
        pytest.param(("--share=",), {"share": None}, id="optional-empty"),
        pytest.param(("--colour=blue",), {"colour": Colour.BLUE}, id="choice"),
        pytest.param(("--sample.quiet",), {"quiet": True}, id="prefixed"),
        pytest.param(("--logtostderr", "--stderrthreshold", "info", "--v=4"), {}, id="klog-is-passed-over"),
    ],
)
def test_flags_are_read_as_go_programs_read_them(words: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert parse(*words) == Sample(**expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--upstream-period=15",), "upstream-period", id="number-is-no-duration"),
        pytest.param(("--quiet=perhaps",), "true or false", id="no-bool"),
        pytest.param(("--colour=green",), "one of Red, Blue", id="no-choice"),
        pytest.param(("--upstream-peroid=1m",), "did you mean --upstream-period", id="typing-error"),
        pytest.param(("--share",), "value must follow", id="missing-value"),
        pytest.param(("--v=x",), "whole number", id="verbosity"),
    ],
)
def test_what_cannot_be_used_is_named(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse(*words)


def test_verbosity_and_words_come_back() -> None:
    parsed = parse_flags(["--v=4", "word", "--", "--not-a-flag"], KNOWN)
    assert (parsed.verbosity, parsed.words) == (4, ["word", "--not-a-flag"])


def test_a_shared_flag_reaches_every_section_and_a_prefixed_one_its_own() -> None:
    known = {"one": options(Sample), "two": options(Sample)}
    parsed = parse_flags(["--quiet", "--two.colour=Blue"], known)
    assert parsed.by_section == {"one": {"quiet": "true"}, "two": {"quiet": "true", "colour": "Blue"}}


def test_a_flag_beats_the_environment_and_the_environment_beats_the_file() -> None:
    env = {"KUBETIDE_SAMPLE_PERIOD": "20s", "KUBETIDE_SAMPLE_QUIET": "true"}
    file = {"period": "30s", "quiet": False, "names": ["x", "y"], "share": 1, "colour": "Blue"}
    assert load(Sample, flags={"upstream-period": "10s"}, env=env, file=file) == Sample(
        period=timedelta(seconds=10), quiet=True, names=("x", "y"), share=1.0, colour=Colour.BLUE
    )


def test_errors_name_the_source() -> None:
    with pytest.raises(SettingsError, match="environment variable KUBETIDE_SAMPLE_SHARE"):
        load(Sample, env={"KUBETIDE_SAMPLE_SHARE": "much"})
    with pytest.raises(SettingsError, match=r"setting sample\.share"):
        load(Sample, file={"share": {"a": 1}})
    with pytest.raises(SettingsError, match="unknown setting"):
        load(Sample, file={"sheer": 1})


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_says_what_it_means_and_its_default_reads_back(section: str) -> None:
    seen: set[str] = set()
    for option in options(SECTIONS[section]):
        assert len(option.doc) > 10, f"{section}.{option.name} has no text"
        assert option.parse(option.show(option.default)) == option.default, option.name
        for name in (option.flag, *option.aliases):
            assert name not in seen, f"--{name} stands twice in {section}"
            seen.add(name)
