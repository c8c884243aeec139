"""Claims: judged by a model, whose quotes are checked."""

from __future__ import annotations

import json

import pytest

from nbrag.errors import ReplyInvalid
from nbrag.models.chat.claims import check_claims, is_supported
from nbrag.testing import ScriptedChatClient
from nbrag.types import Claim, Passage, RetrievalChunk, support_of

PASSAGES = [
    Passage(number, RetrievalChunk(f"c{number}", "d", text, 1.0))
    for number, text in ((2, "Backups are kept for  35 days."), (5, "Logs are kept for a week."))
]


def judged(*claims) -> str:
    keys = ("claim", "verdict", "passages", "quote")
    return json.dumps({"claims": [dict(zip(keys, claim, strict=True)) for claim in claims]})


async def test_verdicts_need_words_that_stand_in_a_passage() -> None:
    chat = ScriptedChatClient(
        [
            judged(
                ("Backups stay 35 days.", "supported", [2], "kept for 35 days"),
                ("Logs stay a week.", "supported", [2], "logs are kept for a week"),
                ("Mails stay.", "supported", [2], "mails stay"),
                ("Logs are small.", "partly", [5], "small logs"),
                ("It is free.", "unsupported", [], ""),
            )
        ]
    )
    claims = await check_claims(chat, "What is kept?", "Backups 35 days [2]. Logs [5].", PASSAGES)
    assert claims[0] == Claim("Backups stay 35 days.", "supported", (2,), "kept for  35 days")
    assert (claims[1].verdict, claims[1].passages) == ("supported", (5,))
    assert (claims[2].verdict, claims[2].quote) == ("partly", "")
    assert "in no passage" in claims[2].note
    assert [claim.verdict for claim in claims[3:]] == ["unsupported", "unsupported"]
    assert support_of(claims) == pytest.approx(2.5 / 5)
    prompt = chat.calls[0].messages[1].content
    assert '"answer": "Backups 35 days. Logs."' in prompt
    assert '{"id": 5' in prompt


async def test_numbers_that_were_not_sent_are_refused() -> None:
    wrong = judged(("One.", "supported", [1], "x"))
    right = judged(("One.", "unsupported", [], ""))
    chat = ScriptedChatClient([wrong, right])
    claims = await check_claims(chat, "What?", "One.", PASSAGES)
    assert claims == (Claim("One.", "unsupported"),)
    assert "there is no passage 1" in chat.calls[1].text
    with pytest.raises(ReplyInvalid):
        await check_claims(ScriptedChatClient([judged(), "junk"]), "What?", "One.", PASSAGES)


async def test_an_answer_without_words_has_no_claims() -> None:
    assert await check_claims(ScriptedChatClient([]), "What?", " [1] ", PASSAGES) == ()
    assert support_of(()) is None


async def test_support_of_a_statement() -> None:
    chat = ScriptedChatClient(['{"supported": true}', '{"reasoning": "no", "supported": false}'])
    assert await is_supported(chat, "What?", "Backups are kept [2].", PASSAGES)
    assert not await is_supported(chat, "What?", "Backups are kept [2].", PASSAGES[1:])
    assert not await is_supported(chat, "What?", "Backups are kept.", [])
    assert len(chat.calls) == 2
