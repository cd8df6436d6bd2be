"""Answers with what its node was started with."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """The node's configuration."""
    return Message(RecordDict({"ours": ConfigRecord(dict(context.node_config))}), reply_to=message)
