"""The configuration: every key has a place, and what is wrong is one sentence with its line."""

import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.supervisor.bounds import Bounds
from ahpd.supervisor.configuration import (
    AgentConfig,
    Configuration,
    ConfigurationError,
    installed_agents,
    load_configuration,
    parse_configuration,
)

FILE = Path("/etc/ahpd/config.toml")


def parse(text: str) -> Configuration:
    return parse_configuration(text, FILE)


def sentence_for(text: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        parse(text)
    said = str(error.value)
    assert "\n" not in said
    return said


def test_a_full_file_is_read_as_it_is_written() -> None:
    configuration = parse(
        """
        [agents.claude-code]
        factory = "my_agents.claude:create"
        options = { model = "large", retries = 3, nested = { deep = [1, 2.5, true] } }
        env = { LOG = "debug" }
        pass_env = ["ANTHROPIC_API_KEY"]

        [agents.second]
        factory = "other:make"

        [bounds]
        max_sessions = 5
        cancel_grace_s = 0.5
        gather_window_ms = 0

        [host]
        host = "127.0.0.1"
        port = 0
        state_dir = "state"
        agent_path = ["agents", "/opt/agents"]
        allow_origin = ["http://localhost:3000"]
        """
    )
    assert list(configuration.agents) == ["claude-code", "second"]
    assert configuration.agents["claude-code"] == AgentConfig(
        factory="my_agents.claude:create",
        options={"model": "large", "retries": 3, "nested": {"deep": [1, 2.5, True]}},
        env={"LOG": "debug"},
        pass_env=("ANTHROPIC_API_KEY",),
    )
    bounds = configuration.bounds
    assert (bounds.max_sessions, bounds.cancel_grace_s, bounds.gather_window_ms) == (5, 0.5, 0)
    assert bounds.kill_grace_s == Bounds().kill_grace_s
    host = configuration.host
    assert (host.host, host.port, host.allow_origin) == (
        "127.0.0.1",
        0,
        ("http://localhost:3000",),
    )
    # Relative to the file, wherever the host is started.
    assert host.state_dir == Path("/etc/ahpd/state")
    assert host.agent_path == (Path("/etc/ahpd/agents"), Path("/opt/agents"))


def test_an_empty_file_is_all_defaults() -> None:
    assert parse("") == Configuration()


@pytest.mark.parametrize("name", [attribute.name for attribute in attrs.fields(Bounds)])
def test_every_bound_is_a_key_and_none_takes_nonsense(name: str) -> None:
    default = getattr(Bounds(), name)
    bounds = parse(f"[bounds]\n{name} = {default!r}").bounds
    assert bounds == Bounds()
    assert type(getattr(bounds, name)) is type(default)
    for nonsense in ('"5"', "true", "-1", "[]", "nan", "inf", "1979-05-27"):
        assert f"{FILE}, line 3: bounds.{name}: " in sentence_for(
            f"# first\n[bounds]\n{name} = {nonsense}"
        )
    if isinstance(default, int):
        assert "whole number" in sentence_for(f"[bounds]\n{name} = 1.5")


def test_bounds_that_contradict_each_other_are_refused() -> None:
    said = sentence_for("[bounds]\nmax_outbound_bytes = 1024")
    assert said == (
        f"{FILE}, line 2: bounds.max_outbound_bytes: "
        "max_outbound_bytes must not be less than max_frame_bytes"
    )
    assert "line 2: bounds.max_frame_bytes: " in sentence_for(
        "[bounds]\nmax_frame_bytes = 1_000_000_000"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents = 3", ", line 1: agents: a table is needed, not a whole number"),
        ("\n\nagent = {}", ", line 3: agent: there is no such key; there are agents, bounds, host"),
        ("[bounds]\nmax_session = 1", ", line 2: bounds.max_session: there is no such key"),
        ("[host]\n\nprot = 1", ", line 3: host.prot: there is no such key"),
        ("[host]\nport = 70000", ", line 2: host.port: a port is needed"),
        ("[host]\nport = true", ", line 2: host.port: a whole number is needed"),
        ("[host]\nno_token = 1", ", line 2: host.no_token: true or false is needed"),
        ('[host]\nallow_origin = "x"', ", line 2: host.allow_origin: a list of strings"),
        ("[host]\nallow_origin = [1]", ", line 2: host.allow_origin: a string is needed"),
        ('[host]\nstate_dir = ""', ", line 2: host.state_dir: a path is needed"),
        ("[agents]\nx = 1", ", line 2: agents.x: a table is needed"),
        ("[agents.x]\n", ", line 1: agents.x: needs a factory: no agent 'x' is installed"),
        (
            '[agents.x]\nfactory = "a:b"\nkind = "echo"',
            ", line 3: agents.x.kind: is one of claude, codex, gemini, copilot, apple",
        ),
        ('[agents.x]\nfactory = "ab"', ", line 2: agents.x.factory: 'ab' is not spelled"),
        ('[agents.x]\nfactory = "a:b c"', ", line 2: agents.x.factory: 'a:b c' is not spelled"),
        ("[agents.x]\nfactory = 1", ", line 2: agents.x.factory: a string is needed"),
        ('[agents.x]\nfactory = "a:b"\nfoo = 1', ", line 3: agents.x.foo: there is no such key"),
        ('[agents."a b"]\nfactory = "a:b"', ', line 1: agents."a b": an agent\'s name is'),
        ('[agents.ahp-chat]\nfactory = "a:b"', ", line 1: agents.ahp-chat: 'ahp-chat' means"),
        (
            '[agents.x]\nfactory = "a:b"\noptions = { when = 1979-05-27 }',
            ", line 3: agents.x.options.when: an option is a value that JSON can say",
        ),
        (
            '[agents.x]\nfactory = "a:b"\n[agents.x.options]\nwhat = nan',
            ", line 4: agents.x.options.what: an option is a value that JSON can say",
        ),
        (
            '[agents.x]\nfactory = "a:b"\n[agents.x.options]\nmy-key = 1',
            ", line 4: agents.x.options.my-key: an option is a keyword argument",
        ),
        (
            '[agents.x]\nfactory = "a:b"\nenv = { A = 1 }',
            ", line 3: agents.x.env.A: a string is needed",
        ),
        (
            '[agents.x]\nfactory = "a:b"\nenv = { AHPD_MARK = "x" }',
            ", line 3: agents.x.env.AHPD_MARK: AHPD_MARK is the host's own to set",
        ),
        (
            '[agents.x]\nfactory = "a:b"\nenv = { A = "\\u0000" }',
            ", line 3: agents.x.env.A: a variable cannot hold a NUL",
        ),
        (
            '[agents.x]\nfactory = "a:b"\npass_env = ["A=B"]',
            ", line 3: agents.x.pass_env: 'A=B' is no environment variable's name",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_key(text: str, said: str) -> None:
    assert f"{FILE}{said}" in sentence_for(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[host\nport = 1", 1),
        ("a = 1\nb = = 2", 2),
        ("a = 1\na = 2", 2),
        ("[host]\nport = 1\n\n[host]\n", 4),
        ('x = "unfinished', 1),
        ('# one\nx = """never\nended\n', 3),
        ("x = [", 1),
    ],
)
def test_bad_toml_is_one_sentence_with_the_line(text: str, line: int) -> None:
    assert sentence_for(text).startswith(f"{FILE}, line {line}")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "{a=" * 5000, "a" * 100_000])
def test_a_monstrous_file_is_one_sentence_too(text: str) -> None:
    sentence_for(text)


def test_options_nested_deeper_than_any_wire_takes_are_refused() -> None:
    deep = "[" * 200 + "]" * 200
    said = sentence_for(f'[agents.x]\nfactory = "a:b"\noptions = {{ deep = {deep} }}')
    assert "agents.x.options.deep" in said


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_sentence(text: str) -> None:
    try:
        parse(text)
    except ConfigurationError as error:
        assert str(FILE) in str(error)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# fine\n# caf\xe9\n")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    for path, said in (
        (missing, f"cannot read {missing}: No such file or directory"),
        (tmp_path, f"cannot read {tmp_path}: Is a directory"),
        (latin, f"{latin}, line 2: not UTF-8"),
        (large, f"{large} is larger than 1048576 bytes"),
    ):
        with pytest.raises(ConfigurationError) as error:
            load_configuration(path)
        assert str(error.value) == said


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[host]\nport = 5\n")
    assert load_configuration(path).host.port == 5


# The command line


def test_an_agent_of_the_command_line_takes_over_the_factory_and_keeps_the_rest() -> None:
    configuration = parse('[agents.x]\nfactory = "a:b"\noptions = { n = 1 }')
    merged = configuration.with_agents(["x=other.module:make", "y=c:d.e"])
    assert merged.agents["x"] == AgentConfig(factory="other.module:make", options={"n": 1})
    assert merged.agents["y"] == AgentConfig(factory="c:d.e")
    assert configuration.agents["x"].factory == "a:b"


@pytest.mark.parametrize("text", ["x", "x=", "=a:b", "x=a", "a b=c:d", "ahp-root=a:b", "x=a:b:c"])
def test_an_agent_that_is_misspelled_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Configuration().with_agents([text])
    assert str(error.value).startswith(f"--agent {text}: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3", 3),
        ("2.5", 2.5),
        ("true", True),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("{ a = 1 }", {"a": 1}),
        ("plain words", "plain words"),
        ("", ""),
        ("a=b", "a=b"),
        ("/some/path", "/some/path"),
        ("1\nother = 2", "1\nother = 2"),
        ("[" * 3000, "[" * 3000),
    ],
)
def test_an_option_is_read_as_toml_or_taken_as_text(value: str, expected: object) -> None:
    configuration = Configuration().with_agents(["my.agent=a:b"])
    merged = configuration.with_agent_options([f"my.agent.key={value}"])
    assert merged.agents["my.agent"].options == {"key": expected}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.key", "is not spelled NAME.KEY=VALUE"),
        ("key=1", "is not spelled NAME.KEY=VALUE"),
        ("y.key=1", "there is no agent 'y'; there are: x"),
        ("x.two words=1", "an option is a keyword argument"),
        ("x.when=1979-05-27", "an option is a value that JSON can say"),
    ],
)
def test_an_option_that_cannot_be_set_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Configuration().with_agents(["x=a:b"]).with_agent_options([text])
    assert str(error.value).startswith(f"--agent-option {text}: ")
    assert said in str(error.value)


# Installed agents


def test_installed_agents_are_found_by_metadata_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "explosive.py").write_text("raise SystemExit('imported')")
    info = tmp_path / "explosive-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: explosive\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ahpd.agents]\nexplosive = explosive:create\nbad name = explosive:create\nodd = nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = installed_agents()
    assert found["explosive"] == "explosive:create"
    assert "bad name" not in found
    assert "odd" not in found
    assert "explosive" not in sys.modules
    configuration = Configuration().with_agents(["explosive=mine:make"]).with_installed_agents()
    assert configuration.agents["explosive"].factory == "mine:make"
    named = parse('[agents.explosive]\nkind = "codex"\noptions = { loud = true }')
    assert named.agents["explosive"] == AgentConfig(
        factory="explosive:create", kind="codex", options={"loud": True}
    )


def test_the_agents_that_ship_with_the_host_are_installed() -> None:
    assert {"echo", "notes"} <= set(installed_agents())
