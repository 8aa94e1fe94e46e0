"""One chat: its channel, its turn machine, its queue, and the worker that answers in it.

State changes only by actions that the chat publishes; nothing here waits, so
every happening is taken whole before the next. What the worker says arrives in
`emissions`, what clients do in `chat_actions`; both end in the methods here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog
import trio
from attrs import frozen

from ...contracts.ahp.reducers import reduce_chat
from ...contracts.ahp.uris import is_valid_id
from ...contracts.chats.names import MESSAGE_META_KEY
from ...contracts.worker_wire import (
    Begin,
    ClientGone,
    Created,
    Steer,
    StopSubagent,
    Taken,
    TurnNamed,
)
from ..processes.output_log import OutputLog
from ..processes.worker_client import WorkerRefused
from ..store.interface import ChatRecord
from . import chat_actions, emissions
from .agent_rules import Memory
from .channel import Channel
from .client_rules import owner_of
from .clock import Stopwatch, now
from .conversation import Conversation, Outcome
from .dispatch import Dispatched, DispatchLine
from .gathering import Gathering
from .parked import parked_in, settling
from .sizes import MAX_ERROR_CHARS, TurnSize, cut, size_of
from .stream import Envelope, Origin
from .turns import TABLE, Happening, Phase, Step
from .watching import Watched

if TYPE_CHECKING:
    from .session import Session

Json = dict[str, Any]

#: What a worker may say before it answers whether it takes a turn up again.
MAX_HELD_BACK = 1000

#: A running turn's actions are kept one by one, and the chat is written down anew when they
#: come to so many bytes; to twice as many the next time, so that a long turn costs its size.
JOURNAL_BYTES = 256 * 1024

#: Streamed text: told before it is kept, and kept within the flush window.
_MAY_LAG = frozenset(
    {
        "chat/delta",
        "chat/reasoning",
        "chat/responsePart",
        "chat/toolCallDelta",
        "chat/toolCallContentChanged",
        "chat/usage",
    }
)

#: Misses that are not counted, such as actions of families that are not served, of which
#: each is written down once: an agent that says ever new ones must not fill the log.
MAX_MENTIONED = 100


@frozen(kw_only=True)
class Facts:
    """What a happening brings along for its steps."""

    dispatched: Dispatched | None = None
    """The client's action that asked for it."""
    action: Json | None = None
    """The agent's action."""
    how: str = ""
    """How the worker died; follows "the agent's process"."""


@frozen(kw_only=True)
class TurnToBegin:
    """A turn that clients see running and no worker has been told of yet."""

    turn_id: str
    message: Json


class Chat:
    """A conversation of a session.

    Attributes:
        id: unique in the host.
        parent: the chat whose agent opened this one as a subagent's, if one did. Such
            a chat has no worker of its own and is read-only for clients.
        beside: what a wire keeps of the chat beside its state. Replaced, never changed.
    """

    conversation = Watched[Conversation | None](kept=False)
    queue_paused = Watched[bool]()
    agent_id = Watched[str | None]()
    beside = Watched[Json]()

    def __init__(
        self,
        session: "Session",
        *,
        id: str,
        uri: str,
        state: Json,
        parent: "Chat | None" = None,
        tool_call_id: str | None = None,
    ) -> None:
        host = session.host
        self.session = session
        self.id = id
        self.parent = parent
        self.tool_call_id = tool_call_id
        self.channel = Channel(
            uri=uri,
            family="chat",
            owner_id=id,
            state=state,
            reduce=reduce_chat,
            stream=host.stream,
            ledger=host.ledger,
            keep=self._keep_action,
            flush=self.flush,
        )
        self.gathering = Gathering(host.nursery, self.publish, self._gather_window_s)
        self.line = DispatchLine(host.nursery, self._take)
        self.conversation = None
        self._lives: list[Conversation] = []
        self.queue_paused = False
        self.agent_id = None
        self.beside = {}
        self.rewind_at: str | None = None
        self.removed = False
        self.stopping = False
        self.log: OutputLog = host.log_of(id)
        self.unacknowledged: set[str] = set()
        self._known_turns = {turn["id"] for turn in state["turns"]}
        self._known_requests: set[str] = set(_request_ids(state))
        self.turn_size = TurnSize(host.bounds.max_turn_bytes)
        self.subagents_bytes = 0
        self._turn_sizes: list[int] = []
        self._stopwatch = Stopwatch()
        self._to_begin: TurnToBegin | None = None
        self._to_cancel: str | None = None
        self._keeps = False
        self._kept_turns: list[Json] = []
        self._journal_bytes = 0
        self._journal_limit = JOURNAL_BYTES
        self._misses: list[float] = []
        self._mentioned: set[str] = set()
        self._held_back: list[tuple[str, Any]] | None = None
        self._steering: dict[str, Callable[[bool], None]] = {}

    def _gather_window_s(self) -> float:
        wished = [
            subscription.max_latency_ms
            for subscription in self.channel.subscriptions.values()
            if subscription.max_latency_ms is not None
        ]
        return min([self.session.host.bounds.gather_window_ms, *wished]) / 1000

    # -- looking ----------------------------------------------------------------------

    @property
    def state(self) -> Json:
        """The chat's state, up to what is still being gathered."""
        return self.channel.state

    @property
    def turn_id(self) -> str | None:
        """The running turn's id."""
        turn = self.state.get("activeTurn")
        return str(turn["id"]) if turn is not None else None

    @property
    def phase(self) -> Phase:
        """What the chat is doing."""
        if self.turn_id is None:
            return Phase.IDLE
        return Phase.WAITING if parked_in(self.state) else Phase.RUNNING

    @property
    def memory(self) -> Memory:
        """What judging an agent's action needs beside the state."""
        return Memory(
            elapsed_ms=self._stopwatch.elapsed_ms,
            known_turns=self._known_turns,
            known_requests=self._known_requests,
            unacknowledged=self.unacknowledged,
            titled_by_person=self.session.titled_by_person,
        )

    @property
    def worker(self) -> Conversation | None:
        """The worker that runs this chat's agent: a subagent's is its parent's."""
        return self.parent.worker if self.parent is not None else self.conversation

    @property
    def lives(self) -> list[Conversation]:
        """Every worker of this chat of which something is left: those replaced, then its own."""
        self._lives = [life for life in self._lives if not life.ended.is_set()]
        return list(self._lives)

    @property
    def is_full(self) -> bool:
        """Whether its ended turns come to all that a chat may hold."""
        turns, sizes = self.state["turns"], self._turn_sizes
        # Turns end and are truncated at the end of the list alone; one that ended stays as it is.
        del sizes[len(turns) :]
        sizes.extend(size_of(turn) for turn in turns[len(sizes) :])
        return sum(sizes) > self.session.host.bounds.max_chat_bytes

    def record(self) -> ChatRecord:
        """What a store keeps of this chat, beside its ended turns."""
        head = {key: value for key, value in self.state.items() if key != "turns"}
        return ChatRecord(
            id=self.id,
            session=self.session.id,
            uri=self.channel.uri,
            parent=self.parent.id if self.parent is not None else None,
            tool_call_id=self.tool_call_id,
            agent_id=self.agent_id,
            rewind_at=self.rewind_at,
            queue_paused=self.queue_paused,
            beside=self.beside,
            turn_count=len(self.state["turns"]),
            head=head,
        )

    # -- changing ---------------------------------------------------------------------

    def publish(self, action: Json, origin: Origin | None = None) -> bool:
        """Applies an action and sends it; answers whether it changed anything."""
        envelope = self.channel.publish(action, origin)
        if envelope is None:
            return False
        self.after_change(action)
        if self.worker is not None:
            self.worker.pace.spend(len(envelope.action_json))
        return True

    def say(self, action: Json) -> bool:
        """Publishes an action of the host's own, after what is being gathered."""
        self.flush()
        return self.publish(action)

    def flush(self) -> None:
        """Publishes what is being gathered."""
        self.gathering.flush()

    def after_change(self, action: Json) -> None:
        """Remembers what the action opened, and lets the session mirror it."""
        kind = action["type"]
        if kind == "chat/turnStarted":
            self._known_turns.add(action["turnId"])
            self._stopwatch = Stopwatch()
            self.turn_size.begin()
        elif kind == "chat/turnResume":
            self.turn_size.measure(self.state["activeTurn"])
            del self._turn_sizes[len(self.state["turns"]) :]
        elif kind == "chat/toolCallStart":
            self._known_requests.add(action["toolCallId"])
        elif kind == "chat/inputRequested":
            self._known_requests.add(action["request"]["id"])
        self.session.chat_changed(self, kind)

    def _keep_action(self, envelope: Envelope) -> None:
        """Keeps what an action changed, before anybody is told of it."""
        if self.removed or not self._keeps:
            return
        size = len(envelope.action_json)
        if self.turn_id is None:
            self._journal_limit = JOURNAL_BYTES
            self.keep()
        elif self._journal_bytes + size > self._journal_limit:
            self._journal_limit *= 2
            self.keep()
        else:
            self._journal_bytes += size
            may_lag = envelope.origin is None and envelope.action["type"] in _MAY_LAG
            store = self.session.host.ledger.store
            store.add_action(self.id, envelope.action_json, may_lag=may_lag)

    def keep(self) -> None:
        """Writes the chat down as it is now: its head, and the turns that are other than kept."""
        if self.removed or not self._keeps:
            return
        store = self.session.host.ledger.store
        turns, kept = self.state["turns"], self._kept_turns
        if turns is not kept:
            pairs = enumerate(zip(turns, kept, strict=False))
            same = min(len(turns), len(kept))
            first = next((number for number, (new, old) in pairs if new is not old), same)
            for number in range(first, len(turns)):
                store.put_turn(self.id, number, turns[number])
            self._kept_turns = turns
        store.put_chat(self.record())
        self._journal_bytes = 0

    def begin_keeping(self) -> None:
        """A new chat is whole: from now on it is written down."""
        self._keeps = True
        self.keep()

    def restored(self, record: ChatRecord, turns: list[Json], ran_ms: float) -> None:
        """Takes what is kept beside the state, in place of what a new chat begins with.

        Args:
            turns: the ended turns as they are kept.
            ran_ms: how long the turn that was cut off had run.
        """
        self.agent_id = record.agent_id
        self.beside = record.beside
        self.rewind_at = record.rewind_at
        # Nothing begins by itself in a new life: what waits, waits for a person's next message.
        self.queue_paused = record.queue_paused or bool(self.state.get("queuedMessages"))
        self._kept_turns = turns
        self._keeps = True
        self._stopwatch = Stopwatch(ran_ms)

    def happens(self, happening: Happening, facts: Facts | None = None) -> None:
        """Takes the steps that the table names for this happening in this phase."""
        self.flush()
        for step in TABLE[happening][self.phase]:
            STEPS[step](self, facts or Facts())

    # -- clients ----------------------------------------------------------------------

    def dispatch(self, dispatched: Dispatched) -> None:
        """Answers a client's action, now or when those before it are answered."""
        self.flush()
        if chat_actions.overtakes(self, dispatched):
            self.line.overtake(dispatched, "the turn was cancelled")
        else:
            self.line.add(dispatched)

    def _take(self, dispatched: Dispatched) -> Any:
        return chat_actions.take(self, dispatched)

    def accept(self, dispatched: Dispatched) -> bool:
        """Applies a client's action and echoes it; answers whether it changed anything."""
        changed = dispatched.accept()
        if changed:
            self.after_change(dispatched.action)
        return changed

    # -- turns ------------------------------------------------------------------------

    def begin(self, turn_id: str, message: Json) -> None:
        """Hands a turn that clients see running to the worker, as soon as one can take it."""
        self._to_begin = TurnToBegin(turn_id=turn_id, message=message)
        self._advance()

    def start_turn(self, message: Json, *, queued_id: str | None = None) -> str:
        """Starts a turn of the host's making, from a queued or an initial message."""
        turn_id = self._reserved_turn(message) or str(uuid4())
        action = {
            "type": "chat/turnStarted",
            "turnId": turn_id,
            "startedAt": now(),
            "message": message,
        }
        self.say(action if queued_id is None else {**action, "queuedMessageId": queued_id})
        self.begin(turn_id, message)
        return turn_id

    def _reserved_turn(self, message: Json) -> str | None:
        """The turn id that was promised for a message, unless it was spent meanwhile."""
        meta = message.get("_meta")
        carried = meta.get(MESSAGE_META_KEY) if isinstance(meta, dict) else None
        promised = carried.get("turnId") if isinstance(carried, dict) else None
        usable = isinstance(promised, str) and is_valid_id(promised)
        return promised if usable and promised not in self._known_turns else None

    def settle_parked(self) -> None:
        """Answers everything that waits on a person as cancelled."""
        for parked in parked_in(self.state):
            self.say(settling(parked))

    def end_turn(self, kind: str, **fields: Any) -> None:
        """Ends the running turn by an ending of the host's own."""
        if self.turn_id is not None:
            elapsed = self._stopwatch.elapsed_ms
            self.say({"type": kind, "turnId": self.turn_id, "duration": elapsed, **fields})

    def end_turn_with_error(self, error_type: str, message: str) -> None:
        """Ends the running turn by `chat/error`."""
        error = {"errorType": error_type, "message": message}
        self.end_turn("chat/error", part={"kind": "error", "error": error})

    def fail_turn(self, error_type: str, message: str) -> None:
        """Ends whatever runs with an error, parked first, and pauses the queue."""
        self._to_begin = None
        if self.turn_id is not None:
            self.settle_parked()
            self.end_turn_with_error(error_type, message)
            self.queue_paused = True

    def client_left(self, client_id: str, *, was_active: bool) -> None:
        """A client left: the tool calls that it ran fail, and the agent hears of a client that
        offered tools."""
        running = self.state.get("activeTurn")
        calls = [
            part["toolCall"]
            for part in (running["responseParts"] if running is not None else [])
            if part.get("kind") == "toolCall" and owner_of(part["toolCall"]) == client_id
        ]
        for parked in parked_in(self.state):
            # Leave to run it would come to nothing: there is nobody who could.
            if parked.kind == "toolConfirmation" and owner_of(parked.body) == client_id:
                self.say(settling(parked))
        for call in calls:
            if call["status"] == "running":
                result = {
                    "success": False,
                    "pastTenseMessage": "The client that ran this tool has left",
                    "error": {"message": f"the client {client_id} has left"},
                }
                named = {"turnId": self.turn_id, "toolCallId": call["toolCallId"]}
                self.say({"type": "chat/toolCallComplete", **named, "result": result})
        # A subagent is its parent's to tell.
        if self.parent is not None or not (was_active or calls):
            return
        if self.worker is not None and "client_gone" in self.worker.members:
            left = [tool for tool in self.worker.tools if tool["clientId"] != client_id]
            self.worker.tools = left
            self.worker.tell("session.clientGone", ClientGone(client_id=client_id))

    def steer(self, id: str, message: Json) -> None:
        """Offers a steering message to the agent; what it does not take begins the next turn."""

        def heard(outcome: Outcome) -> None:
            accepted = isinstance(outcome, Taken) and outcome.accepted
            if accepted:
                removed = {"type": "chat/pendingMessageRemoved", "kind": "steering", "id": id}
                self.say(removed)
            then = self._steering.pop(id, None)
            if then is not None:
                then(accepted)

        if self.worker is not None:
            self.worker.tell(
                "turn.steer", Steer(id=id, text=message["text"], message=message), heard
            )

    def when_steered(self, id: str, then: Callable[[bool], None]) -> Callable[[], object]:
        """Calls `then` once with whether the agent took the steering message of that id, which
        is about to be dispatched. Answers what is to be called if it is refused."""
        self._steering[id] = then
        return lambda: self._steering.pop(id, None)

    def clear(self) -> None:
        """Empties the thread, ends what runs of it, and lets go of the agent's conversation.

        What waits on a person is settled and a running turn is cancelled first; the
        queue, its pause and background work go too. The next message starts a new worker.
        """
        self.line.refuse_all("the chat was cleared")
        if self.turn_id is not None:
            self.happens(Happening.CANCEL)
        for subagent in self.session.subagents_of(self):
            self.session.remove_chat(subagent)
        waiting = [("queued", one) for one in self.state.get("queuedMessages", [])]
        if "steeringMessage" in self.state:
            waiting.append(("steering", self.state["steeringMessage"]))
        for kind, message in waiting:
            removed = {"type": "chat/pendingMessageRemoved", "kind": kind}
            self.say({**removed, "id": message["id"]})
        for work in self.state.get("backgroundWork", []):
            self.say({"type": "chat/backgroundWorkRemoved", "id": work["id"]})
        self.queue_paused = False
        self.agent_id = self.rewind_at = None
        self.say({"type": "chat/truncated"})
        self.replace_worker("the chat was cleared")

    # -- the worker -------------------------------------------------------------------

    def start_worker(self) -> None:
        """Starts a worker for this chat; what waits to begin is handed to it when it is ready."""
        if self.parent is not None or self.conversation is not None or self.stopping:
            return
        if self.session.agent not in self.session.host.agents.by_name:
            # A kept session can outlive its agent's place in the configuration.
            self._to_begin = None
            if self.turn_id is not None:
                self._failed_to_begin(f"This host has no agent {self.session.agent!r} any more.")
        else:
            self.conversation = self.session.make_conversation(self)
            self._lives = [*self.lives, self.conversation]
            self.session.host.nursery.start_soon(self.conversation.run)

    def replace_worker(self, why: str) -> None:
        """Ends the worker; the next turn, or the one that waits, gets a new one.

        Args:
            why: for the chat's log.
        """
        conversation, self.conversation = self.conversation, None
        if conversation is not None:
            self.log.write_host_line(f"worker replaced: {why}")
        self._lose_worker("was replaced")
        if conversation is not None:
            conversation.end(self.session.host.bounds.kill_grace_s)
        self._advance()

    def _lose_worker(self, how: str) -> None:
        """What only this worker could still say is over: late parts, and its subagents' turns."""
        self.unacknowledged.clear()
        if "activity" in self.state and not self.removed:
            # Nobody else is left to say that it does nothing any more.
            self.say({"type": "chat/activityChanged"})
        for subagent in self.session.subagents_of(self):
            subagent.happens(Happening.WORKER_DIED, Facts(how=how))

    def restart(self) -> None:
        """Ends the worker on its operator's word; the next message starts a new one.

        For clients it died: a running turn ends, its queue waits. A session that
        is still being created goes on being created, by the new worker.
        """
        conversation = self.conversation
        self._to_begin = None
        self.log.write_host_line("worker restarted by its operator")
        self.happens(Happening.WORKER_DIED, Facts(how="was restarted by its operator"))
        if conversation is not None:
            conversation.end(self.session.host.bounds.kill_grace_s)
            if not conversation.members:
                self.start_worker()

    def _advance(self) -> None:
        if self._to_begin is None or self.parent is not None:
            return
        if self.conversation is None:
            self.start_worker()
        elif self.conversation.ready and not self.unacknowledged:
            to_begin, self._to_begin = self._to_begin, None
            model = to_begin.message.get("model")
            begin = Begin(
                turn_id=to_begin.turn_id,
                text=to_begin.message["text"],
                model=model.get("id") if isinstance(model, dict) else None,
                message=to_begin.message,
            )
            conversation = self.conversation
            conversation.tell(
                "turn.begin",
                begin,
                lambda outcome: self._begun(conversation, begin.turn_id, outcome),
                timeout_s=self.session.host.bounds.begin_timeout_s,
            )

    def _begun(self, conversation: Conversation, turn_id: str, outcome: Outcome) -> None:
        if conversation is not self.conversation:
            return
        if turn_id != self.turn_id:
            # Cancelled meanwhile. An agent that never took the turn has nothing to finish.
            refused = isinstance(outcome, Taken) and not outcome.accepted
            if refused or isinstance(outcome, WorkerRefused):
                self.on_turn_over(turn_id)
            return
        if isinstance(outcome, trio.TooSlowError):
            limit_s = self.session.host.bounds.begin_timeout_s
            conversation.fail(f"did not take the turn within {limit_s:g} s")
        elif isinstance(outcome, Taken):
            if not outcome.accepted:
                self._failed_to_begin(outcome.reason or "The agent refused the turn.")
        elif isinstance(outcome, WorkerRefused):
            self._failed_to_begin(f"The agent could not begin the turn: {outcome}")
        # Of a worker that is gone its end is told, by `on_ended`, and how.

    def _failed_to_begin(self, message: str) -> None:
        told = {"errorType": "agentError", "message": cut(message, MAX_ERROR_CHARS)}
        error = {"kind": "error", "error": told}
        action = {"type": "chat/error", "turnId": self.turn_id, "duration": 0, "part": error}
        self.happens(Happening.FAILED, Facts(action=action))

    def on_created(self, conversation: Conversation, created: Created) -> None:
        """The worker has the agent's session; the turn that waits can begin."""
        if conversation is not self.conversation:
            return
        self.rewind_at = None
        if created.agent_id is not None:
            self.agent_id = created.agent_id
        self.keep()
        self.session.on_created(self, created)
        self._advance()

    def on_worker_event(self, conversation: Conversation, name: str, payload: Any) -> None:
        """The worker told something. A worker that was replaced is read and not heard."""
        if conversation is not self.conversation or self.removed:
            return
        if self._held_back is None:
            emissions.on_event(self, name, payload)
        elif len(self._held_back) < MAX_HELD_BACK:
            self._held_back.append((name, payload))
        else:
            conversation.fail("said too much before it answered whether it takes the turn up again")

    def hold_back(self) -> None:
        """Keeps what the worker says until it is known whether a turn goes on: it may say parts
        of that turn before its answer is heard."""
        self._held_back = []

    def hear_held_back(self) -> None:
        """Takes what was kept, in order."""
        held, self._held_back = self._held_back, None
        for name, payload in held or ():
            if not self.removed:
                emissions.on_event(self, name, payload)

    def on_turn_over(self, turn_id: str) -> None:
        """The agent acknowledged the end of a turn that was cancelled."""
        if turn_id in self.unacknowledged:
            self.unacknowledged.discard(turn_id)
            for subagent in self.session.subagents_of(self):
                subagent.unacknowledged.clear()
            self._advance()

    def on_ended(self, conversation: Conversation, how: str) -> None:
        """The worker is gone. One that was replaced or asked to go is no news."""
        if conversation is not self.conversation:
            return
        if self.removed:
            self.conversation = None
            return
        never_created = not conversation.members
        structlog.get_logger().info("worker ended", session=self.session.id, chat=self.id, how=how)
        if self._to_begin is not None and not never_created:
            # It was never told of the turn that waits, which the next worker gets.
            self.conversation = None
            self._lose_worker(how)
            self._advance()
            return
        self._to_begin = None
        self.happens(Happening.WORKER_DIED, Facts(how=how))
        if never_created:
            self.session.on_creation_failed(self, f"The agent's process {how}")

    def missed(self, rule: str, detail: str, *, counted: bool = True) -> None:
        """An agent's action broke a rule: written down; an agent that keeps on is ended."""
        if not counted:
            if rule + detail in self._mentioned or len(self._mentioned) >= MAX_MENTIONED:
                return
            self._mentioned.add(rule + detail)
        self.log.write_host_line(f"{rule}: {detail}")
        conversation = self.worker
        if not counted or conversation is None:
            return
        bounds = self.session.host.bounds
        at_s = trio.current_time()
        self._misses.append(at_s)
        if len(self._misses) >= bounds.broken_actions_limit:
            self._misses = [
                missed_s
                for missed_s in self._misses
                if missed_s > at_s - bounds.broken_actions_window_s
            ]
        if len(self._misses) >= bounds.broken_actions_limit:
            self._misses.clear()
            conversation.fail(
                f"was ended: it broke the protocol's rules {bounds.broken_actions_limit} times "
                f"within {bounds.broken_actions_window_s:g} s, last `{rule}`"
            )

    # -- steps ------------------------------------------------------------------------

    def _step_refuse(self, facts: Facts) -> None:
        if facts.dispatched is not None:
            running = self.turn_id is not None
            facts.dispatched.refuse("a turn is running" if running else "no turn is running")

    def _step_drop(self, facts: Facts) -> None:
        if facts.action is not None:
            self.missed("one-ending", f"{facts.action['type']} while no turn runs")

    def _step_lift_pause(self, facts: Facts) -> None:
        self.queue_paused = False

    def _step_pause_queue(self, facts: Facts) -> None:
        self.queue_paused = True

    def _step_begin_turn(self, facts: Facts) -> None:
        if facts.dispatched is not None:
            action = facts.dispatched.action
            self.accept(facts.dispatched)
            self.begin(action["turnId"], action["message"])

    def _step_settle_parked(self, facts: Facts) -> None:
        self.settle_parked()

    def _step_end_as_cancelled(self, facts: Facts) -> None:
        turn_id = self.turn_id
        if facts.dispatched is not None:
            self.accept(facts.dispatched)
        else:
            self.end_turn("chat/turnCancelled")
        if self._to_begin is not None and self._to_begin.turn_id == turn_id:
            # No worker was told of it, so there is nobody to tell of its end.
            self._to_begin = None
        elif turn_id is not None:
            self.unacknowledged.add(turn_id)
            self._to_cancel = turn_id
        for subagent in self.session.subagents_of(self):
            if subagent.turn_id is not None:
                subagent.happens(Happening.CANCEL)

    def _step_end_as_said(self, facts: Facts) -> None:
        if facts.action is not None:
            self.say(facts.action)

    def _step_end_as_died(self, facts: Facts) -> None:
        self.end_turn_with_error("workerDied", f"The agent's process {facts.how}")

    def _step_end_as_interrupted(self, facts: Facts) -> None:
        self.end_turn_with_error("interrupted", "The host was stopped while this turn ran.")

    def _step_tell_cancel(self, facts: Facts) -> None:
        turn_id, self._to_cancel = self._to_cancel, None
        conversation = self.conversation
        if turn_id is None or self.parent is not None:
            # A subagent's turn ends with its parent's, or by `stop_worker`.
            return
        if conversation is None or not conversation.ready:
            self.unacknowledged.clear()
            return
        conversation.tell("turn.cancel", TurnNamed(turn_id=turn_id))
        conversation.after(
            self.session.host.bounds.cancel_grace_s, self._when_unheard(conversation, turn_id)
        )

    def _when_unheard(self, conversation: Conversation, turn_id: str) -> Callable[[], None]:
        def grace_is_over() -> None:
            if conversation is self.conversation and turn_id in self.unacknowledged:
                self.replace_worker(f"the cancel of {turn_id} was not heard")

        return grace_is_over

    def _step_drain_queue(self, facts: Facts) -> None:
        if self.queue_paused or self.turn_id is not None or self.is_full:
            return
        # A steering message that the agent did not take comes before the queue.
        steering = self.state.get("steeringMessage")
        kind = "steering" if steering is not None else "queued"
        waiting = [steering] if steering is not None else self.state.get("queuedMessages", [])
        if waiting:
            first = waiting[0]
            self.say({"type": "chat/pendingMessageRemoved", "kind": kind, "id": first["id"]})
            self.start_turn(first["message"], queued_id=first["id"])

    def _step_forget_worker(self, facts: Facts) -> None:
        self.conversation = None
        self._lose_worker(facts.how)

    def _step_end_worker(self, facts: Facts) -> None:
        if self.conversation is not None:
            self.conversation.end(self.session.host.bounds.kill_grace_s)
        elif self.worker is not None and "stop_worker" in self.worker.members:
            self.worker.tell("subagent.stop", StopSubagent(tool_call_id=self.tool_call_id or ""))

    def _step_close_worker(self, facts: Facts) -> None:
        self.stopping = True
        if self.parent is None and self.conversation is not None:
            self.conversation.close(removing=False)

    def _step_remove_chat(self, facts: Facts) -> None:
        self.removed = True
        self._to_begin = None
        self.line.refuse_all("the chat was removed")


def _request_ids(state: Json) -> list[str]:
    running = state.get("activeTurn")
    ids = []
    for turn in [*state["turns"], *([running] if running is not None else [])]:
        for part in turn["responseParts"]:
            if part.get("kind") == "toolCall":
                ids.append(part["toolCall"]["toolCallId"])
            elif part.get("kind") == "inputRequest":
                ids.append(part["request"]["id"])
    return ids


#: What the chat does for each step of the table.
STEPS: dict[Step, Callable[[Chat, Facts], None]] = {
    Step.REFUSE: Chat._step_refuse,
    Step.DROP: Chat._step_drop,
    Step.LIFT_PAUSE: Chat._step_lift_pause,
    Step.PAUSE_QUEUE: Chat._step_pause_queue,
    Step.BEGIN_TURN: Chat._step_begin_turn,
    Step.SETTLE_PARKED: Chat._step_settle_parked,
    Step.END_AS_CANCELLED: Chat._step_end_as_cancelled,
    Step.END_AS_SAID: Chat._step_end_as_said,
    Step.END_AS_DIED: Chat._step_end_as_died,
    Step.END_AS_INTERRUPTED: Chat._step_end_as_interrupted,
    Step.TELL_CANCEL: Chat._step_tell_cancel,
    Step.DRAIN_QUEUE: Chat._step_drain_queue,
    Step.FORGET_WORKER: Chat._step_forget_worker,
    Step.END_WORKER: Chat._step_end_worker,
    Step.CLOSE_WORKER: Chat._step_close_worker,
    Step.REMOVE_CHAT: Chat._step_remove_chat,
}
