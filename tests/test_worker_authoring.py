"""The authoring contract names every member there is, and says which the host calls yet."""

from pathlib import Path

import attrs
import pytest

import ahpd.worker
from ahpd.contracts.authoring import AGENT_OPTIONAL, SESSION_OPTIONAL, Agent, Session, Start

AGENT = """
provider display_name schema defaults create description probe directories list find transcript
subagents delete protected_resources state_file endpoints config_completions kind capabilities
"""
SESSION = """
uri chat_uri agent_id session_state chat_state all_turns status activity title modified_at
working_directories models customizations begin cancel steer resume stop_worker queue unqueue
reorder set_draft confirm answer set_answer set_config settings set_working_directories completions
set_customization_enabled start_mcp_server stop_mcp_server set_tools tool_call_owner
complete_tool_call client_gone fork_point end_point close
"""
START = """
uri chat_uri chat_id settings working_directory additional trusted tools mcp_servers instructions
resume fork_at rewind_at context seed credentials emit subagent on_file_edit on_account
"""


def required(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_every_member_of_an_agent_is_named() -> None:
    assert required(Agent) | set(AGENT_OPTIONAL) == set(AGENT.split())
    assert not required(Agent) & set(AGENT_OPTIONAL)


def test_every_member_of_a_session_is_named() -> None:
    assert required(Session) | set(SESSION_OPTIONAL) == set(SESSION.split())
    assert not required(Session) & set(SESSION_OPTIONAL)


def test_everything_a_session_is_started_with_is_named() -> None:
    assert {field.name for field in attrs.fields(Start)} == set(START.split())


def test_a_member_that_is_said_to_be_called_is_called_somewhere() -> None:
    source = "".join(path.read_text() for path in Path(ahpd.worker.__file__).parent.glob("*.py"))
    for table in (AGENT_OPTIONAL, SESSION_OPTIONAL):
        for name, member in table.items():
            assert (f'"{name}"' in source) is member.called, name


def test_a_start_without_a_host_trusts_nobody_and_opens_nothing() -> None:
    start = Start(uri="ahp-session:/s", chat_uri="ahp-chat:/s", emit=lambda channel, action: None)
    assert start.trusted("/") is False
    with pytest.raises(RuntimeError, match="no host"):
        start.subagent("c", {})
