"""What the fuzzing sends: strategies for bytes, handshakes, frames, messages and a worker's words.

Ids in them are `t1`, `c1`, `r1` and their like (see `ahp_actions`); the harness
gives those of each example a number of its own. `t1` is the turn that runs.
"""

import base64
import json
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st

import ahp_actions
from ahp_actions import JSON, META, TEXT, nearly, shape
from ahpd.contracts.ahp.actions import client_may_dispatch
from ahpd.contracts.ahp.uris import ROOT_URI, default_chat_uri
from ws_raw import frame, frame_head, request

Json = dict[str, Any]

#: The session that must not be disturbed, and the one that is open to everybody.
NEIGHBOUR = "ahp-session:/neighbour"
NEIGHBOUR_CHAT = default_chat_uri(NEIGHBOUR)
FUZZED = "ahp-session:/fuzzed"
FUZZED_CHAT = default_chat_uri(FUZZED)


@st.composite
def weighted(draw: st.DrawFn, *choices: tuple[int, st.SearchStrategy[Any]]) -> Any:
    """One of the strategies, each so often (`one_of` takes those that are alike for one)."""
    heavy = [index for index, (weight, _) in enumerate(choices) for _ in range(weight)]
    return draw(choices[draw(st.sampled_from(heavy))][1])


def many(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Lists of lengths up to `most`, many of them long; hypothesis' own are nearly always short."""
    counts = st.sampled_from([0, 1, most // 4, most // 2, most])
    return counts.flatmap(lambda count: st.lists(of, min_size=count, max_size=count))


def drawn(of: st.SearchStrategy[Any], count: int, seed: int) -> st.SearchStrategy[Any]:
    """One of about so many values of a strategy, made once.

    A long list of large values is more than hypothesis makes in one example; a long
    list of choices among them is little, and shrinks well.
    """
    made: dict[str, Any] = {}

    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.seed(seed)
    @hypothesis.given(of)
    def collect(value: Any) -> None:
        made.setdefault(json.dumps(value), value)

    collect()
    return st.sampled_from(list(made.values()))


# -- bytes ---------------------------------------------------------------------------

#: Strings of bytes, also long runs of one.
BYTES = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=3), st.integers(1, 20_000)
)
_HEADER_NAMES = st.sampled_from(
    [
        "Host",
        "Upgrade",
        "Connection",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
        "Sec-WebSocket-Protocol",
        "Sec-WebSocket-Extensions",
        "Origin",
        "Authorization",
        "Content-Length",
        "Transfer-Encoding",
        "X",
    ]
)
_TARGETS = st.sampled_from(["/", "/chats", "/?token=", "/?tkn=x", "*", "http://x/", "/%00", ""])
_HEADER_VALUES = st.binary(max_size=40) | st.sampled_from(
    [b"websocket", b"Upgrade", b"13", b"8", b"null", b"Bearer x", b"chunked", b"-1", b"\xff", b""]
)


@st.composite
def handshakes(draw: st.DrawFn, token: str) -> list[bytes]:
    """An upgrade request that is nearly right, in one or more pieces."""
    target = draw(st.just(f"/?token={token}") | _TARGETS | st.text("ab/?=&%#é", max_size=20))
    head = request(
        target,
        headers=draw(st.dictionaries(_HEADER_NAMES, _HEADER_VALUES, max_size=3)),
        without=tuple(draw(st.lists(_HEADER_NAMES, max_size=2))),
    )
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(head)))
        head = head[:at] + draw(st.binary(max_size=8)) + head[at + draw(st.integers(0, 4)) :]
    cut = draw(st.integers(0, len(head)))
    return [head[:cut], head[cut:], draw(st.binary(max_size=40))]


_OPCODES = st.sampled_from([0x0, 0x1, 0x1, 0x2, 0x8, 0x9, 0xA]) | st.integers(0, 15)
_PAYLOADS = st.one_of(
    BYTES,
    TEXT.map(str.encode),
    st.just(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    st.sampled_from([b"\x03\xe8", b"\x03\xedx", b"\xff\xff", b"\x00"]),
)

#: What is written after a handshake that was accepted.
FRAMES: st.SearchStrategy[list[bytes]] = st.lists(
    st.one_of(
        st.builds(
            frame,
            _OPCODES,
            _PAYLOADS,
            fin=st.booleans(),
            mask=st.sampled_from([True, True, True, False]),
            rsv=st.sampled_from([0, 0, 0, 0, 1, 4, 7]),
        ),
        st.builds(
            frame_head,
            _OPCODES,
            st.integers(0, 2**63) | st.integers(0, 300),
            fin=st.booleans(),
        ),
        st.binary(max_size=20),
    ),
    max_size=8,
)

# -- messages of a client ------------------------------------------------------------

_OWN_CHANNELS = st.sampled_from(
    [FUZZED, FUZZED_CHAT, FUZZED, FUZZED_CHAT, "ahp-chat:/fuzzed", "fuzzed:/fuzzed", ROOT_URI]
)
_MADE_SESSIONS = st.sampled_from([f"ahp-session:/made-{number}" for number in range(2)])
_MADE_CHATS = st.sampled_from([f"ahp-chat:/made-chat-{number}" for number in range(2)])
_NAMES = st.one_of(
    st.sampled_from(["ahp-session:/none", "ahp-chat:/none", "ahp-chat://default/!", "x", ""]),
    st.sampled_from([FUZZED + "/annotations", "ahp-terminal:/1", "ahp-session:/%", "a:/\ud800"]),
    TEXT,
)
_CHANNELS = weighted((4, _OWN_CHANNELS), (1, _MADE_SESSIONS), (1, _MADE_CHATS), (1, _NAMES))
_UNKNOWN_CHANNELS = weighted((2, _MADE_SESSIONS), (2, _MADE_CHATS), (1, _NAMES))
#: Whoever only looks may look at the neighbour too.
_LOOKED_AT = weighted((3, _CHANNELS), (1, st.sampled_from([NEIGHBOUR, NEIGHBOUR_CHAT])))

_MESSAGE = shape(
    {"text": TEXT | st.just("say it"), "origin": st.just({"kind": "user"})},
    {"attachments": st.just([{"type": "simple", "label": "a"}]), "_meta": META},
)
_SETTINGS = st.dictionaries(
    st.sampled_from(["text", "count", "flag", "none"]), JSON | TEXT, max_size=2
)
_FOLDERS = st.sampled_from(["file:///", "file:///none", "http://x", "file://host/"]) | TEXT
_AGENTS = st.sampled_from(["fuzzed", "none"])

#: Well-formed actions of a chat about the turn that runs, where they are about one.
OF_THE_TURN = ahp_actions.CHAT_ACTIONS.map(
    lambda said: {**said, "turnId": "t1"} if "turnId" in said else said
)
#: Those that let a turn go on.
_IN_A_TURN = OF_THE_TURN.filter(
    lambda said: not said["type"].startswith(("chat/turn", "chat/error", "chat/truncated"))
)
#: Those that a client may say and the host takes as they are, now and then.
_CLIENTS = OF_THE_TURN.filter(lambda said: client_may_dispatch(said["type"]))
_OF_SESSION = ahp_actions.SESSION_ACTIONS.filter(lambda said: client_may_dispatch(said["type"]))
ACTIONS = weighted(
    (2, ahp_actions.CHAT_ACTIONS),
    (1, ahp_actions.SESSION_ACTIONS),
    (1, ahp_actions.ROOT_ACTIONS),
    (2, nearly(OF_THE_TURN)),
    (1, nearly(ahp_actions.SESSION_ACTIONS)),
)


def _dispatched(
    channels: st.SearchStrategy[str], actions: st.SearchStrategy[Any]
) -> st.SearchStrategy[Json]:
    return shape({"channel": channels, "clientSeq": st.integers(1, 2**53), "action": actions})


#: The parameters of each method, well formed.
PARAMS: dict[str, st.SearchStrategy[Json]] = {
    "initialize": shape(
        {
            "protocolVersions": st.lists(
                st.sampled_from(["1.0.0", "0.9.0", "0.8.0", "2.0.0", "1.0.0-rc.1", "1"]) | TEXT,
                max_size=3,
            ),
            "clientId": st.sampled_from(["fuzz-a", "fuzz-b"]) | TEXT,
            "channel": st.just(ROOT_URI),
        },
        {"initialSubscriptions": st.lists(_LOOKED_AT, max_size=4), "locale": TEXT, "_meta": META},
    ),
    "ping": shape({"channel": st.just(ROOT_URI)}),
    "reconnect": shape(
        {
            "clientId": st.sampled_from(["fuzz-a", "fuzz-b"]),
            "lastSeenServerSeq": st.integers(0, 2**64),
            "subscriptions": st.lists(_LOOKED_AT, max_size=4),
        }
    ),
    "subscribe": shape(
        {"channel": _LOOKED_AT},
        {
            "delivery": shape({}, {"maxLatencyMs": st.integers(0, 100) | st.floats(0, 1e300)}),
            "view": shape({}, {"turns": st.integers(0, 3) | st.integers(0, 2**70)}),
        },
    ),
    "unsubscribe": shape({"channel": _LOOKED_AT}),
    "dispatchAction": _dispatched(_CHANNELS, ACTIONS),
    "createSession": shape(
        {"channel": _MADE_SESSIONS | _CHANNELS},
        {
            "provider": _AGENTS,
            "workingDirectories": st.lists(_FOLDERS, max_size=2),
            "config": _SETTINGS,
            "activeClient": ahp_actions.CLIENT,
            "progressToken": TEXT,
        },
    ),
    "disposeSession": shape({"channel": _CHANNELS}),
    "listSessions": shape(
        {"channel": st.just(ROOT_URI)},
        {"limit": st.integers(1, 3) | st.integers(), "cursor": TEXT | st.just("WyJhIiwiYiJd")},
    ),
    "resolveSessionConfig": shape(
        {"channel": st.just(ROOT_URI)},
        {"provider": _AGENTS, "workingDirectory": _FOLDERS, "config": _SETTINGS},
    ),
    "sessionConfigCompletions": shape(
        {"channel": st.just(ROOT_URI), "property": st.sampled_from(["text", "none"])},
        {"provider": _AGENTS, "config": _SETTINGS, "query": TEXT},
    ),
    "completions": shape(
        {
            "channel": _CHANNELS,
            "kind": st.sampled_from(["file", "command"]),
            "text": TEXT,
            "offset": st.integers(0, 9),
        }
    ),
    "fetchTurns": shape({"channel": _LOOKED_AT}, {"cursor": TEXT | st.just("YmVmb3JlOg==")}),
    "createChat": shape(
        {"channel": st.just(FUZZED) | _CHANNELS, "chat": _MADE_CHATS | _CHANNELS},
        {"initialMessage": _MESSAGE, "workingDirectories": st.lists(_FOLDERS, max_size=2)},
    ),
    "disposeChat": shape({"channel": _MADE_CHATS | _CHANNELS}),
}

_IDS = st.integers(1, 20) | st.integers() | TEXT | st.floats(allow_nan=False, allow_infinity=False)
_WITHOUT_ID = ("unsubscribe", "dispatchAction")


def _said(method: str) -> st.SearchStrategy[Json]:
    base = {"jsonrpc": st.just("2.0"), "method": st.just(method), "params": PARAMS[method]}
    return shape(base if method in _WITHOUT_ID else {**base, "id": _IDS})


_ON_CHAT = st.sampled_from([FUZZED_CHAT, FUZZED_CHAT, "ahp-chat:/fuzzed"])
_ON_SESSION = st.sampled_from([FUZZED, FUZZED, "fuzzed:/fuzzed"])


def _dispatch(params: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    said = {"jsonrpc": st.just("2.0"), "method": st.just("dispatchAction"), "params": params}
    return shape(said)


_ODD_TEXTS = st.sampled_from(
    [
        "",
        "[]",
        "null",
        "\ufeff{}",
        "[" * 100_000,
        '{"a":' * 200 + "1" + "}" * 200,
        '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        '{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
        '{"jsonrpc":"2.0","id":"\\ud83d","method":"ping"}',
        '{"jsonrpc":"2.0","id":' + "9" * 5000 + ',"method":"ping"}',
        '{"jsonrpc":"2.0","id":7,"method":"\\ud83d","params":{}}',
        '{"jsonrpc":"2.0","id":8,"method":"subscribe","params":{"channel":"\\ud83d:/\\udc00"}}',
        '{"jsonrpc":"2.0","id":9,"result":{}}',
    ]
)

#: What may stand where a scalar stands in JSON, and means something else than what did.
_ODD_SCALARS = st.sampled_from(
    [
        "null",
        "true",
        "[]",
        "{}",
        "0",
        "-1",
        "1.0",
        "0.5",
        "-0.0",
        "1e308",
        "1e309",
        "9007199254740993",
        "-18446744073709551617",
        "1" + "0" * 308,
        "1" + "0" * 309,
        "-1" + "0" * 400,
        "9" * 5000,
        '""',
        '"\\u0000"',
        '"\\ud83d"',
        '"\\udc00"',
        '"\\r\\n\\u2028"',
        '"' + "x" * 20_000 + '"',
        '"__proto__"',
        '"2026-13-45T99:99:99Z"',
        '"9999-12-31T23:59:59.999Z"',
        '"0001-01-01T00:00:00+14:00"',
        '"file:///%00"',
        '"ahp-chat:/%ff"',
        "NaN",
        "-Infinity",
    ]
)
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"(?!\s*:)|-?\d[\d.eE+-]*|\b(?:true|false|null)\b')


@st.composite
def odd(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """A JSON text in which one scalar, or two, became another."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 2))):
        places = list(_SCALAR.finditer(text))
        if places:
            place = draw(st.sampled_from(places))
            text = text[: place.start()] + draw(_ODD_SCALARS) + text[place.end() :]
    return text


def messages(seed: int, share: float) -> st.SearchStrategy[list[str]]:
    """Messages of a client as text: right, nearly right, any JSON, any text.

    Args:
        share: of the variety, which takes seconds to make: 1 is all of it.
    """

    def some(of: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
        return drawn(of, max(5, round(count * share)), seed)

    commands = st.one_of(*map(_said, PARAMS))
    dispatched = some(_dispatch(_dispatched(_ON_CHAT, _CLIENTS)), 300).map(json.dumps)
    asked = st.one_of(*(some(_said(name), 20) for name in PARAMS)).map(json.dumps)
    return many(
        weighted(
            (6, dispatched),
            (2, some(_dispatch(_dispatched(_ON_SESSION, _OF_SESSION)), 150).map(json.dumps)),
            (2, some(_said("dispatchAction"), 150).map(json.dumps)),
            (8, asked),
            (4, some(nearly(commands), 200).map(json.dumps)),
            (4, odd(dispatched)),
            (2, odd(asked)),
            (1, JSON.map(json.dumps)),
            (1, TEXT),
            (1, _ODD_TEXTS),
        ),
        most=25,
    )


# -- words of a worker ---------------------------------------------------------------

_CALL_IDS = ahp_actions.CALL_IDS | TEXT
_EMITTED_ON = weighted(
    (3, st.sampled_from(["chat", "session"])),
    (3, st.sampled_from(["terminal", "root", ROOT_URI, NEIGHBOUR, NEIGHBOUR_CHAT, "ahp-chat:/no"])),
    (1, TEXT),
)


def _event(name: str, payload: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return shape({"type": st.just("event"), "event": st.just(name), "payload": payload})


def _emitted(
    channels: st.SearchStrategy[str], actions: st.SearchStrategy[Any]
) -> st.SearchStrategy[Json]:
    return _event("agent.emit", shape({"channel": channels, "action": actions}))


_EVENTS = st.one_of(
    _event(
        "worker.part",
        shape({"id": st.integers(1, 9).map(str), "items": st.lists(JSON, max_size=3)}),
    ),
    _event("worker.ruleBroken", shape({"rule": TEXT, "detail": TEXT})),
    _event("agent.id", shape({"agentId": TEXT | st.just("x" * 5000)})),
    _event("agent.account", shape({"account": JSON})),
    _event(
        "agent.fileEdit",
        shape({"turnId": ahp_actions.TURN_IDS, "path": TEXT, "phase": st.just("before")}),
    ),
    _event("subagent.opened", shape({"toolCallId": _CALL_IDS, "request": META})),
    _event("turn.over", shape({"turnId": ahp_actions.TURN_IDS})),
)
_REPLIES = st.one_of(
    _event("worker.hello", shape({"wire": st.sampled_from(["1.0", "2.0"]), "pid": st.integers()})),
    shape({"id": st.integers(0, 20).map(str), "ok": st.just(True), "result": JSON}),
    shape(
        {
            "id": st.integers(0, 20).map(str) | st.none(),
            "ok": st.just(False),
            "error": shape({"code": TEXT, "message": TEXT}),
        }
    ),
    shape({"id": TEXT, "type": st.sampled_from(["host.stop", "worker.load"]), "payload": JSON}),
)


def _as_frame(said: Any) -> Json:
    return {"frame": said}


def _as_bytes(data: bytes) -> Json:
    return {"bytes": base64.b64encode(data).decode()}


def written(seed: int, share: float) -> st.SearchStrategy[list[Json]]:
    """What a hostile worker writes in one turn, and what it does then.

    A fault nearly always ends it, so that comes last.

    Args:
        share: of the variety, which takes seconds to make: 1 is all of it.
    """

    def some(of: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
        return drawn(of, max(5, round(count * share)), seed)

    emitted = _emitted(st.just("chat"), _IN_A_TURN)
    in_a_turn = some(emitted, 400)
    said = weighted(
        (5, in_a_turn),
        (1, some(_emitted(st.just("session"), ahp_actions.SESSION_ACTIONS), 150)),
        (2, some(_emitted(_EMITTED_ON, ACTIONS), 200)),
        (1, some(_EVENTS, 100)),
    )
    oddly = odd(in_a_turn.map(json.dumps)).map(lambda text: _as_bytes(text.encode() + b"\n"))
    faults = weighted(
        (3, some(nearly(st.one_of(emitted, _EVENTS)), 200).map(_as_frame)),
        (1, some(_REPLIES, 50).map(_as_frame)),
        (1, JSON.map(_as_frame)),
        (1, BYTES.map(_as_bytes)),
        (1, BYTES.map(lambda data: _as_bytes(data + b"\n"))),
    )
    then = st.sampled_from(["return", "return", "sleep", "exit"]).map(lambda then: {"then": then})
    return st.builds(
        lambda said, faults, then: [*said, *faults, then],
        many(weighted((8, said.map(_as_frame)), (1, oddly)), most=40),
        st.lists(faults, max_size=2),
        then,
    )
