"""Every spelling of a channel leads to its id, and nothing that is sent makes a parser raise."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahpd.contracts.ahp.uris import (
    MAX_ID_CHARS,
    MAX_URI_CHARS,
    ROOT_URI,
    ChannelName,
    chat_uri,
    default_chat_uri,
    file_uri,
    id_in,
    is_valid_id,
    parse_channel,
    path_of_file_uri,
    session_uri,
    session_uri_in,
    subagent_chat_id,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
IDS = TEXT.filter(is_valid_id)
ANY_STRING = st.text(st.characters()) | st.from_regex(r"[a-z-]{1,8}:/{0,3}[%a-z0-9/?#=_-]{0,20}")


@given(IDS)
@example("a/b")
@example("100%")
@example("..")
@example("\0")
@example("💬" * MAX_ID_CHARS)
def test_an_id_comes_back_out_of_every_spelling_of_its_channels(ident: str) -> None:
    spelled = session_uri(ident)
    provider = "echo:" + spelled.partition(":")[2]
    assert parse_channel(spelled) == parse_channel(provider) == ChannelName("session", ident)
    assert parse_channel(chat_uri(ident)) == ChannelName("chat", ident)
    for session in (spelled, provider):
        computed = default_chat_uri(session)
        assert "=" not in computed
        assert session_uri_in(computed) == session
        assert parse_channel(computed) == ChannelName("chat", ident)


@given(ANY_STRING)
def test_parsers_never_raise(text: str) -> None:
    named = parse_channel(text)
    assert named is None or named.family == "root" or is_valid_id(named.id)
    assert id_in(text) is None or is_valid_id(id_in(text) or "")
    session_uri_in(text)
    path = path_of_file_uri(text)
    assert path is None or (path.startswith("/") and "\0" not in path)


def test_the_name_vs_code_computes_is_ours() -> None:
    # base64url of "echo:/1-2", written down by hand.
    assert default_chat_uri("echo:/1-2") == "ahp-chat://default/ZWNobzovMS0y"


@pytest.mark.parametrize("uri", [ROOT_URI, "ahp-root:/", "ahp-root:", "AHP-ROOT://"])
def test_the_root_is_the_root_in_any_spelling(uri: str) -> None:
    assert parse_channel(uri) == ChannelName("root", "")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "no colon",
        "ahp-root://somewhere",
        "ahp-session:/",
        "ahp-session:",
        "ahp-session:/%ff",
        "ahp-session:/" + "a" * (MAX_ID_CHARS + 1),
        "x:/" + "a/" * MAX_URI_CHARS + "b",
        "ahp-terminal:/t1",
        "ahp-resource-watch:/w1",
        "ahp-chat://default/not+base64",
        "ahp-chat://default/",
        default_chat_uri("ahp-chat:/c1"),
        default_chat_uri("ahp-root://"),
        default_chat_uri("not a uri"),
    ],
)
def test_what_names_no_channel_of_ours_names_none(uri: str) -> None:
    assert parse_channel(uri) is None


def test_only_the_last_segment_identifies() -> None:
    assert parse_channel("copilot:/a/b/c") == ChannelName("session", "c")
    assert parse_channel("copilot://host/c?query#fragment") == ChannelName("session", "c")
    assert parse_channel("ahp-session:/x/annotations") == ChannelName("session", "annotations")


@pytest.mark.parametrize("ident", ["", "a" * (MAX_ID_CHARS + 1), "\ud800"])
def test_an_invalid_id_is_never_written(ident: str) -> None:
    with pytest.raises(ValueError):
        session_uri(ident)
    with pytest.raises(ValueError):
        chat_uri(ident)


@given(st.text(), st.text(), st.text(), st.text())
@example("a", "bc", "ab", "c")
@example("", "a", "a", "")
def test_a_subagents_chat_is_named_by_its_pair_alone(a: str, b: str, c: str, d: str) -> None:
    same = subagent_chat_id(a, b) == subagent_chat_id(c, d)
    assert same == ((a, b) == (c, d))


def test_a_subagents_chat_id_is_the_same_on_every_machine() -> None:
    assert subagent_chat_id("chat", "call") == "sub-a1969464768f947a9f761c1e25b86d07"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example("a b/ü?#%25")
@example("not utf-8: \udcff")
def test_a_path_comes_back_out_of_its_uri(text: str) -> None:
    assert path_of_file_uri(file_uri("/" + text)) == "/" + text


def test_a_file_uri_with_a_host_of_this_machine_is_taken() -> None:
    assert path_of_file_uri("file://localhost/a") == "/a"
    assert path_of_file_uri("FILE:///a%20b") == "/a b"


@pytest.mark.parametrize(
    "uri",
    [
        "file://elsewhere/a",
        "file:a",
        "file:///a?b",
        "file:///a#b",
        "file:///a%00",
        "file:///a%2",
        "file:///%zz",
        "http:///a",
        "/a",
        "",
    ],
)
def test_a_uri_that_names_no_local_file_gives_no_path(uri: str) -> None:
    assert path_of_file_uri(uri) is None


@pytest.mark.parametrize("path", ["", "a", "./a", "/a\0"])
def test_a_relative_path_has_no_uri(path: str) -> None:
    with pytest.raises(ValueError):
        file_uri(path)
