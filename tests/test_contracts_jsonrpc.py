"""JSON-RPC: every text is a message or a refusal that says how to answer it, and versions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.ahp.commands import BEFORE_INITIALIZE, COMMANDS, NOTIFICATIONS
from ahpd.contracts.ahp.errors import ErrorCode
from ahpd.contracts.ahp.jsonrpc import (
    Malformed,
    Notification,
    Request,
    Response,
    ResponseError,
    error,
    notification,
    parse_message,
    request,
    success,
)
from ahpd.contracts.ahp.versions import (
    SUPPORTED_VERSIONS,
    line_of,
    negotiate,
    parse_version,
)
from ahpd.contracts.shapes import ShapeError, structure, unstructure

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FINITE_JSON = JSON.filter(lambda value: "Infinity" not in json.dumps(value))
PARAMS = st.dictionaries(TEXT, FINITE_JSON, max_size=3)
IDS = st.integers() | TEXT | st.floats(allow_nan=False, allow_infinity=False)
NEAR_MESSAGES = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
    JSON | st.sampled_from(["2.0", "ping", 1, {"code": -1, "message": "m"}]),
)


@given(st.binary() | st.text() | NEAR_MESSAGES.map(json.dumps))
def test_parsing_never_raises_and_says_how_to_answer(data: bytes | str) -> None:
    message = parse_message(data)
    if isinstance(message, Malformed):
        assert message.message
        answer = json.loads(error(message.id, message.code, message.message))
        assert answer["error"]["code"] == message.code


@given(IDS, TEXT.filter(bool), PARAMS)
def test_a_call_reads_back_as_it_was_written(ident: Any, method: str, params: Any) -> None:
    read = parse_message(request(ident, method, params))
    assert read == Request(id=ident, method=method, params=params)
    assert parse_message(notification(method, params)) == Notification(method=method, params=params)


@given(IDS, FINITE_JSON)
def test_an_answer_reads_back_as_it_was_written(ident: Any, value: Any) -> None:
    assert parse_message(success(ident, value)) == Response(id=ident, result=value)
    refused = parse_message(error(ident, ErrorCode.CONFLICT, "no", value))
    assert refused == Response(id=ident, error=ResponseError(code=-32011, message="no", data=value))


@pytest.mark.parametrize("ident", [0, -1, 7, 1.5, "", "a", "7"])
def test_an_id_is_answered_as_it_came(ident: Any) -> None:
    read = parse_message(json.dumps({"jsonrpc": "2.0", "id": ident, "method": "ping"}))
    assert isinstance(read, Request)
    assert json.loads(success(read.id, None)) == {"jsonrpc": "2.0", "id": ident, "result": None}
    assert type(read.id) is type(ident)


@pytest.mark.parametrize("ident", [True, False, None, {}, [1]])
def test_an_id_that_is_none_is_refused_without_it(ident: Any) -> None:
    read = parse_message(json.dumps({"jsonrpc": "2.0", "id": ident, "method": "ping"}))
    assert isinstance(read, Malformed)
    assert (read.code, read.id, read.silent) == (ErrorCode.INVALID_REQUEST, None, False)


@pytest.mark.parametrize(
    ("data", "code", "ident"),
    [
        ("", ErrorCode.PARSE_ERROR, None),
        ("{", ErrorCode.PARSE_ERROR, None),
        (b"\xff", ErrorCode.PARSE_ERROR, None),
        ("5", ErrorCode.INVALID_REQUEST, None),
        ("[]", ErrorCode.INVALID_REQUEST, None),
        ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', ErrorCode.INVALID_REQUEST, None),
        ("{}", ErrorCode.INVALID_REQUEST, None),
        ('{"id":1,"method":"ping"}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1,"method":5}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1,"method":""}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', ErrorCode.INVALID_PARAMS, 1),
        ('{"jsonrpc":"2.0","id":1,"error":"no"}', ErrorCode.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":""}}', -32600, 1),
        ('{"jsonrpc":"2.0","result":1}', ErrorCode.INVALID_REQUEST, None),
    ],
)
def test_what_is_no_message_has_its_code(data: Any, code: int, ident: Any) -> None:
    read = parse_message(data)
    assert isinstance(read, Malformed)
    assert (read.code, read.id, read.silent) == (code, ident, False)


def test_a_notification_is_never_answered_not_even_a_bad_one() -> None:
    read = parse_message('{"jsonrpc":"2.0","method":"unsubscribe","params":5}')
    assert isinstance(read, Malformed)
    assert read.silent


def test_absent_params_are_an_empty_object() -> None:
    for params in ("", ',"params":null', ',"params":{}'):
        read = parse_message('{"jsonrpc":"2.0","id":1,"method":"ping"' + params + "}")
        assert read == Request(id=1, method="ping", params={})


def test_a_refusal_of_something_unreadable_has_a_null_id_and_no_data() -> None:
    assert json.loads(error(None, ErrorCode.PARSE_ERROR, "no")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "no"},
    }


# -- versions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["1.0.0", "0.9.0"], "1.0.0"),
        (["0.9.0", "1.0.0"], "1.0.0"),
        (["0.9.0", "1.0.0", "1.4.2", "2.0.0"], "1.4.2"),
        (["0.9.7", "0.9.10", "0.8.99"], "0.9.10"),
        (["0.10.0", "0.9.0"], "0.10.0"),
        (["1.0.0-beta.2", "1.0.0-beta.11"], "1.0.0-beta.11"),
        (["1.0.0-rc.1", "1.0.0", "1.0.0-alpha"], "1.0.0"),
        (["1.0.0+build.7"], "1.0.0+build.7"),
        (["1.0.0+a", "1.0.0+b"], "1.0.0+a"),
        (["2.0.0", "0.11.0", "0.0.9"], None),
        ([], None),
    ],
)
def test_the_newest_version_we_speak_is_chosen_as_it_was_written(
    offered: list[str], chosen: str | None
) -> None:
    assert negotiate(offered) == chosen


@pytest.mark.parametrize(
    "entry",
    [
        *(None, 1, True, ["1.0.0"]),
        *("", "1", "1.0", "v1.0.0", "1.0.0 ", "1.0.0\n", "01.0.0", "١.0.0"),
        *("1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+"),
        *("9" * 5000 + ".0.0", "1.0.0-" + "a" * 500),
    ],
)
def test_an_entry_that_is_no_version_is_refused_with_a_sentence(entry: Any) -> None:
    with pytest.raises(ValueError, match=r"protocol version"):
        negotiate(["1.0.0", entry])


@given(st.lists(st.text() | JSON, max_size=4))
def test_negotiating_chooses_one_of_the_offered_or_refuses(offered: list[Any]) -> None:
    try:
        assert negotiate(offered) in [*offered, None]
    except ValueError as refusal:
        assert str(refusal)


def test_versions_have_the_precedence_of_their_own_specification() -> None:
    # Semantic Versioning 2.0.0, section 11, in its own order.
    ladder = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2"]
    ladder += ["1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1"]
    assert sorted(map(parse_version, ladder)) == list(map(parse_version, ladder))


def test_every_version_we_name_is_one_we_speak() -> None:
    assert SUPPORTED_VERSIONS[0] == "1.0.0"
    for version in SUPPORTED_VERSIONS:
        assert negotiate([version]) == version
        line = line_of(version)
        assert line is not None
        assert line.supported == version
    assert line_of("0.1.0") is None


# -- parameters of the methods -------------------------------------------------

MESSAGE = {"text": "hi", "origin": {"kind": "user"}}
GOOD_PARAMS: list[tuple[str, dict[str, Any]]] = [
    (
        "initialize",
        {
            "channel": "ahp-root://",
            "protocolVersions": ["1.0.0", "0.9.0"],
            "clientId": "c1",
            "clientInfo": {"name": "vscode", "version": "1"},
            "initialSubscriptions": ["ahp-root://"],
            "locale": "en",
            "capabilities": {"mcpApps": {}},
        },
    ),
    ("ping", {"channel": "ahp-root://"}),
    (
        "reconnect",
        {"channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 7, "subscriptions": []},
    ),
    ("subscribe", {"channel": "ahp-chat:/1", "view": {"turns": 20}}),
    ("subscribe", {"channel": "ahp-chat:/1", "delivery": {"maxLatencyMs": 50}}),
    ("unsubscribe", {"channel": "ahp-chat:/1"}),
    ("dispatchAction", {"channel": "ahp-chat:/1", "clientSeq": 1, "action": {"type": "x"}}),
    (
        "createSession",
        {
            "channel": "echo:/1",
            "provider": "echo",
            "workingDirectories": ["file:///a"],
            "config": {"voice": "plain"},
            "activeClient": {"clientId": "c", "tools": [{"name": "open", "future": 1}]},
            "progressToken": "p",
        },
    ),
    ("disposeSession", {"channel": "echo:/1"}),
    ("listSessions", {"channel": "ahp-root://", "limit": 10, "cursor": "x"}),
    ("resolveSessionConfig", {"channel": "ahp-root://", "provider": "echo", "config": {}}),
    ("sessionConfigCompletions", {"channel": "ahp-root://", "property": "voice", "query": "p"}),
    ("completions", {"channel": "ahp-chat:/1", "kind": "userMessage", "text": "@", "offset": 1}),
    ("fetchTurns", {"channel": "ahp-chat:/1", "cursor": "x"}),
    ("createChat", {"channel": "echo:/1", "chat": "ahp-chat:/2", "initialMessage": MESSAGE}),
    (
        "createChat",
        {
            "channel": "echo:/1",
            "chat": "ahp-chat:/2",
            "source": {"kind": "sideChat", "chat": "ahp-chat:/1", "turnId": "t"},
        },
    ),
    ("disposeChat", {"channel": "ahp-chat:/2"}),
]


@pytest.mark.parametrize(("method", "params"), GOOD_PARAMS)
def test_parameters_read_and_write_back(method: str, params: dict[str, Any]) -> None:
    read = structure(params, COMMANDS[method])
    written = unstructure(read)
    assert {key: written[key] for key in params} == params
    assert structure({**params, "_meta": {"k": 1}, "future": []}, COMMANDS[method]).meta == {"k": 1}


def test_every_method_has_an_example_here() -> None:
    assert {method for method, _ in GOOD_PARAMS} == set(COMMANDS)
    assert {"dispatchAction", "unsubscribe"} == NOTIFICATIONS
    assert {"initialize", "ping", "reconnect"} == BEFORE_INITIALIZE


def test_vs_code_reconnects_without_a_channel() -> None:
    params = {"clientId": "c", "lastSeenServerSeq": 1, "subscriptions": ["ahp-root://"]}
    assert structure(params, COMMANDS["reconnect"]).channel == "ahp-root://"


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("initialize", {"clientId": "c"}, "params.protocolVersions: is missing"),
        ("initialize", {"protocolVersions": "1.0.0", "clientId": "c"}, "params.protocolVersions: "),
        ("reconnect", {}, "params.clientId: is missing"),
        ("subscribe", {}, "params.channel: is missing"),
        ("subscribe", {"channel": "c", "view": {"turns": True}}, "params.view.turns: expected a"),
        ("subscribe", {"channel": "c", "view": {"turns": -1}}, "params.view.turns: expected at"),
        ("listSessions", {"limit": 0}, "params.limit: expected at least 1"),
        ("dispatchAction", {"channel": "c", "action": {}}, "params.clientSeq: is missing"),
        ("dispatchAction", {"channel": "c", "clientSeq": 1, "action": 1}, "params.action: exp"),
        (
            "createSession",
            {"channel": "c", "activeClient": {"clientId": "c", "tools": [{}]}},
            "params.activeClient.tools[0].name: is missing",
        ),
        (
            "createChat",
            {"channel": "c", "chat": "d", "initialMessage": {"text": "hi"}},
            "params.initialMessage.origin: is missing",
        ),
        (
            "createChat",
            {"channel": "c", "chat": "d", "source": {"chat": "e", "turnId": "t"}},
            "params.source.kind: is missing",
        ),
    ],
)
def test_bad_parameters_say_where(method: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        structure(params, COMMANDS[method])
    assert str(caught.value).startswith(message)
