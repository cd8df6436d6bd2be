"""Asks one node one question, or fails, or waits for its end."""

from __future__ import annotations

import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What the run config says."""
    what = context.run_config["what"]
    print(f"to do: {what}", flush=True)
    if what == "fail":
        raise RuntimeError("as asked")
    while what == "wait":
        time.sleep(0.1)
    while not (nodes := list(grid.get_nodes())):
        time.sleep(0.1)
    question = RecordDict({"ours": ConfigRecord({"text": "who are you?"})})
    asked = set(grid.push_messages([Message(question, dst_node_id=nodes[0].node_id, message_type="query", ttl=600)]))
    while not (replies := list(grid.pull_messages(asked))):
        time.sleep(0.1)
    print(f"answer: {dict(replies[0].content['ours'])}", flush=True)
